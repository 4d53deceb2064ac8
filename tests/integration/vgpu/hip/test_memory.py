"""Device memory: contents, limits, and who may touch what."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_size_t, c_void_p

import numpy as np
import pytest

from tests.integration.release.real import CACHE
from tests.integration.vgpu.hip.conftest import Play
from tests.support.virtual_hip import TO_DEVICE, TO_HOST, Hip
from vgpu.hip.build_hip import build_virtual_hip

INVALID_VALUE, INVALID_DIRECTION, ALREADY_REGISTERED, NOT_REGISTERED = 1, 21, 712, 713
DEVICE_TO_DEVICE, DEFAULT = 3, 4


def test_contents(play: Play) -> None:
    hip = play()
    x = np.arange(1000, dtype=np.float32)
    a, b = hip.upload(x), c_void_p()
    hip.hipMalloc(byref(b), c_size_t(x.nbytes))
    assert np.isnan(hip.download(b, x)).all(), "fresh memory must not look like a result"
    hip.hipMemcpyAsync(b, a, c_size_t(x.nbytes), DEVICE_TO_DEVICE, None)
    assert (hip.download(b, x) == x).all()
    hip.hipMemset(c_void_p((b.value or 0) + 4), 0, c_size_t(8))
    assert hip.download(b, x)[:4].tolist() == [0, 0, 0, 3]
    hip.hipMemcpy(a, b, c_size_t(x.nbytes), DEFAULT)
    assert hip.download(a, x)[1] == 0
    for pointer in (a, b):
        hip.hipFree(pointer)
        assert hip.library.hipFree(pointer) == INVALID_VALUE
    hip.hipFree(None)


def test_copies_that_leave_an_allocation_are_refused(play: Play) -> None:
    hip = play()
    x = np.zeros(64, dtype=np.uint8)
    at = hip.upload(x)
    host, long = x.ctypes.data_as(c_void_p), c_size_t(65)
    copy = hip.library.hipMemcpy
    assert copy(at, host, long, TO_DEVICE) == INVALID_VALUE
    assert copy(host, at, long, TO_HOST) == INVALID_VALUE
    assert copy(host, host, c_size_t(64), TO_HOST) == INVALID_VALUE
    assert "65 bytes" not in hip.report() and "leaves its allocation" in hip.report()
    assert copy(at, host, c_size_t(64), 7) == INVALID_DIRECTION
    assert hip.library.hipMemset(at, 0, long) == INVALID_VALUE


def attributes(hip: Hip, at: c_void_p) -> tuple[int, int, int, int]:
    buffer = ctypes.create_string_buffer(32)
    hip.hipPointerGetAttributes(buffer, at)
    kind, device, on_device, on_host = struct.unpack_from("<iiQQ", buffer.raw)
    return kind, device, on_device, on_host


@pytest.mark.parametrize(("major", "host", "device"), [(7, 1, 2), (5, 0, 1)])
def test_pointers_are_known_by_kind(play: Play, major: int, host: int, device: int) -> None:
    hip = play("gfx908,gfx90a", of=build_virtual_hip(CACHE, major=major))
    hip.hipSetDevice(1)
    on_device, on_host = c_void_p(), c_void_p()
    hip.hipMalloc(byref(on_device), c_size_t(100))
    hip.hipHostMalloc(byref(on_host), c_size_t(100), 0)
    inner = c_void_p((on_device.value or 0) + 99)
    assert attributes(hip, inner) == (device, 1, inner.value, 0)
    assert attributes(hip, on_host) == (host, 1, on_host.value, on_host.value)
    outside = c_void_p((on_device.value or 0) + 100)
    assert hip.library.hipPointerGetAttributes(ctypes.create_string_buffer(32), outside) == INVALID_VALUE
    assert hip.library.hipFree(on_host) == INVALID_VALUE
    hip.hipHostFree(on_host)


def test_registered_host_memory(play: Play) -> None:
    hip = play()
    x = np.zeros(64, dtype=np.uint8)
    at = x.ctypes.data_as(c_void_p)
    hip.hipHostRegister(at, c_size_t(64), 0)
    assert hip.library.hipHostRegister(at, c_size_t(64), 0) == ALREADY_REGISTERED
    hip.hipMemset(at, 7, c_size_t(64))
    assert x.tolist() == [7] * 64
    hip.hipHostUnregister(at)
    assert hip.library.hipHostUnregister(at) == NOT_REGISTERED
