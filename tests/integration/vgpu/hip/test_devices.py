"""Virtual devices and their memory, in the layouts that a program was compiled against."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p

import numpy as np
import pytest

from aotforge.base.architectures import load_architectures
from tests.integration.release.real import CACHE
from tests.integration.vgpu.hip.conftest import Play
from tests.support.virtual_hip import TO_DEVICE, TO_HOST, Hip, HipError
from vgpu.emulator.targets import emulated_targets
from vgpu.hip.build_hip import build_virtual_hip

NO_DEVICE, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE = 100, 101, 1, 2, 400
# offsets from HIP's public headers: name, totalGlobalMem, warpSize, multiProcessorCount, gcnArchName; size
R0600 = (0, 288, 308, 388, 1160, 1472)
LEGACY = (0, 256, 276, 336, 396, 792)


def properties(hip: Hip, call: str, layout: tuple[int, ...], device: int) -> tuple[str, int, int, int, str]:
    buffer = ctypes.create_string_buffer(b"\xee" * (layout[5] + 64), layout[5] + 64)
    getattr(hip, call)(buffer, device)
    data = buffer.raw
    assert data[layout[5] :] == b"\xee" * 64, "written behind the structure"
    text = [data[at : at + 256].split(b"\0")[0].decode() for at in (layout[0], layout[4])]
    (memory,) = struct.unpack_from("<Q", data, layout[1])
    lanes, units = (struct.unpack_from("<i", data, at)[0] for at in layout[2:4])
    return text[0], memory, lanes, units, text[1]


def attribute(hip: Hip, which: int, device: int) -> int:
    found = c_int()
    hip.hipDeviceGetAttribute(byref(found), which, device)
    return found.value


def test_both_layouts_of_the_properties(play: Play) -> None:
    hip = play("gfx908,gfx942@40,gfx1100:")
    assert hip.count() == 3
    mi100 = ("AMD Instinct MI100", 32 << 30, 64, 120, "gfx908:sramecc+:xnack-")
    for call, layout in (("hipGetDevicePropertiesR0600", R0600), ("hipGetDeviceProperties", LEGACY)):
        assert properties(hip, call, layout, 0) == mi100
        assert properties(hip, call, layout, 1)[2:] == (64, 40, "gfx942:sramecc+:xnack-")
        assert properties(hip, call, layout, 2)[2:] == (32, 48, "gfx1100:")
        with pytest.raises(HipError, match=str(INVALID_DEVICE)):
            properties(hip, call, layout, 3)
    assert [attribute(hip, 63, n) for n in range(3)] == [120, 40, 48]
    assert [attribute(hip, 87, n) for n in range(3)] == [64, 64, 32]
    assert attribute(hip, 10015, 2) == 96
    with pytest.raises(HipError):
        attribute(hip, 9998, 0)
    assert "9998" in hip.report()


def test_release_5_has_no_later_functions(play: Play) -> None:
    hip = play(of=build_virtual_hip(CACHE, major=5))
    assert properties(hip, "hipGetDeviceProperties", LEGACY, 0)[4].startswith("gfx908")
    for later in ("hipGetDevicePropertiesR0600", "hipStreamGetDevice"):
        with pytest.raises(AttributeError):
            getattr(hip.library, later)
    version = c_int()
    hip.hipRuntimeGetVersion(byref(version))
    assert version.value // 10_000_000 == 5
    # each call replaces the last error
    assert hip.library.hipSetDevice(9) == INVALID_DEVICE
    hip.hipSetDevice(0)
    assert hip.library.hipGetLastError() == 0


def test_the_last_error_stays_until_it_is_read(play: Play) -> None:
    hip = play()
    assert hip.library.hipSetDevice(9) == INVALID_DEVICE
    hip.hipSetDevice(0)
    assert [hip.library.hipPeekAtLastError(), hip.library.hipGetLastError()] == [INVALID_DEVICE] * 2
    assert hip.library.hipGetLastError() == 0
    hip.library.hipGetErrorName.restype = ctypes.c_char_p
    assert hip.library.hipGetErrorName(INVALID_DEVICE) == b"hipErrorInvalidDevice"


def test_no_stream_is_being_captured(play: Play) -> None:
    """What PyTorch's headers query of streams: a library compiled with them needs the symbols."""
    hip = play()
    stream, state, number = c_void_p(), c_int(9), c_ulonglong(9)
    hip.hipStreamCreateWithPriority(byref(stream), 1, -1)
    for one in (None, stream):
        hip.hipStreamIsCapturing(one, byref(state))
        hip.hipStreamGetCaptureInfo(one, byref(state), byref(number))
        assert (state.value, number.value) == (0, 0)
        state, number = c_int(9), c_ulonglong(9)
    assert hip.library.hipStreamIsCapturing(None, None) == INVALID_VALUE
    assert hip.library.hipStreamIsCapturing(c_void_p(64), byref(state)) == INVALID_HANDLE
    mode = c_int(2)
    hip.hipThreadExchangeStreamCaptureMode(byref(mode))
    assert mode.value == 0  # global, as of every thread that has set none
    hip.hipThreadExchangeStreamCaptureMode(byref(mode))
    assert mode.value == 2
    least, greatest, found = c_int(), c_int(), c_int()
    hip.hipDeviceGetStreamPriorityRange(byref(least), byref(greatest))
    hip.hipStreamGetPriority(stream, byref(found))
    assert (least.value, greatest.value, found.value) == (1, -1, -1)
    event = c_void_p()
    hip.hipEventCreate(byref(event))
    hip.hipEventRecordWithFlags(event, stream, 0)
    hip.hipEventSynchronize(event)


def test_no_devices_and_unknown_archs(play: Play, capfd: pytest.CaptureFixture[str]) -> None:
    hip = play("none")
    assert hip.library.hipGetDeviceCount(byref(c_int())) == NO_DEVICE
    assert hip.library.hipMalloc(byref(c_void_p()), c_size_t(16)) == NO_DEVICE
    hip = play("gfx9999,gfx90a", log="error")
    assert hip.count() == 1
    assert "unknown arch gfx9999" in capfd.readouterr().err


def test_devices_are_named_as_archs_are(play: Play) -> None:
    hip = play("MI250X:xnack+,AMD Radeon RX 7900 XTX@7,GFX908,amd")
    assert hip.count() == 3
    found = [properties(hip, "hipGetDevicePropertiesR0600", R0600, device)[3:] for device in range(3)]
    assert found == [(104, "gfx90a:xnack+"), (7, "gfx1100"), (120, "gfx908:sramecc+:xnack-")]


def uuid(number: int) -> str:
    return f"GPU-76677075{number:08x}"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ({}, "0123"),
        ({"HIP": "1"}, "1"),
        ({"HIP": "3,0,3,1"}, "301"),
        ({"HIP": "0,9,1"}, "0"),
        ({"HIP": "0,-1,1"}, "0"),
        ({"HIP": "-1"}, ""),
        ({"HIP": "0, 1"}, "0"),
        ({"HIP": "01"}, ""),
        ({"HIP": "none"}, ""),
        ({"HIP": ""}, "0123"),
        ({"HIP": f"{uuid(2)},0"}, "20"),
        ({"HIP": f"0,{uuid(4)},1"}, "0"),
        ({"CUDA": "2,1"}, "21"),
        ({"CUDA": "2", "HIP": "1"}, "1"),
        ({"CUDA": "2", "HIP": ""}, "2"),
        ({"ROCR": "2,1"}, "21"),
        ({"ROCR": " 1 , 0x3"}, "13"),
        ({"ROCR": "1,1,2"}, "1"),
        ({"ROCR": "1,x,2"}, "1"),
        ({"ROCR": "4"}, ""),
        ({"ROCR": ""}, ""),
        ({"ROCR": f"{uuid(3).lower()},0"}, "30"),
        ({"ROCR": "GPU-7667"}, ""),
        ({"ROCR": "3,2,1", "HIP": "2,0"}, "13"),
        ({"ROCR": "3,2", "HIP": "2"}, ""),
        ({"ROCR": "3,2", "HIP": f"{uuid(2)},{uuid(0)}"}, "2"),
        ({"ROCR": "3,2", "CUDA": "1"}, "2"),
    ],
)
def test_visible_devices_are_those_of_rocm(play: Play, visible: dict[str, str], expected: str) -> None:
    hip = play("gfx1036,gfx908,gfx90a,gfx1100", visible=visible)
    archs = [("gfx1036", "gfx908", "gfx90a", "gfx1100")[int(number)] for number in expected]
    count = c_int(-1)
    assert hip.library.hipGetDeviceCount(byref(count)) == (0 if archs else NO_DEVICE)
    assert count.value == len(archs)
    for device, (number, arch) in enumerate(zip(expected, archs, strict=True)):
        assert properties(hip, "hipGetDevicePropertiesR0600", R0600, device)[4].split(":")[0] == arch
        buffer = ctypes.create_string_buffer(R0600[5])
        hip.hipGetDevicePropertiesR0600(buffer, device)
        own = ctypes.create_string_buffer(17)
        hip.hipDeviceGetUuid(own, device)
        assert f"GPU-{own.value.decode()}" == uuid(int(number))
        assert buffer.raw[256:272] == own.value
        assert attribute(hip, 67, device) == int(number) + 1  # the bus does not change
        hip.hipSetDevice(device)
        hip.hipFree(hip.upload(np.zeros(4)))
    assert hip.library.hipSetDevice(len(archs)) == (INVALID_DEVICE if archs else NO_DEVICE)


def test_memory_is_as_large_as_the_products(play: Play) -> None:
    hip = play("gfx1102")
    free, total = c_size_t(), c_size_t()
    held = c_void_p()
    hip.hipMalloc(byref(held), c_size_t(1 << 20))
    hip.hipMemGetInfo(byref(free), byref(total))
    assert (total.value, total.value - free.value) == (8 << 30, 1 << 20)
    assert hip.library.hipMalloc(byref(c_void_p()), c_size_t(9 << 30)) == OUT_OF_MEMORY


def test_every_arch_of_the_manifest_is_a_virtual_device(play: Play) -> None:
    known = load_architectures().amd
    assert (
        {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}
        <= set(emulated_targets())
        <= set(known)
    )
    hip = play(",".join(known))
    assert hip.count() == len(known)
    for number, (arch, row) in enumerate(known.items()):
        device = row.device
        assert properties(hip, "hipGetDevicePropertiesR0600", R0600, number) == (
            device.product, device.memory_gib << 30, row.warp_size, device.compute_units,
                arch + device.features
        )  # fmt: skip
        assert attribute(hip, 74, number) == row.shared_bytes


INVALID_DIRECTION, ALREADY_REGISTERED, NOT_REGISTERED = 21, 712, 713
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
