"""What a program learns about virtual devices, in the layouts that it was compiled against."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p

import pytest

from aotforge.base.architectures import load_architectures
from tests.integration.release.real import CACHE
from tests.integration.vgpu.hip.conftest import Play
from tests.support.virtual_hip import Hip, HipError
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
            device.product, device.memory_gib << 30, row.wavefront, device.compute_units,
                arch + device.features
        )  # fmt: skip
        assert attribute(hip, 74, number) == row.lds_bytes
