"""Loads from global memory to LDS: what they move, and what a wave has to wait for before it or another one
uses the data."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.bench import FAULT, RUNNING, Bench
from tests.integration.vgpu.emulator.handwritten import caught, kernel, run, without
from vgpu.emulator.decoded import Checks
from vgpu.emulator.measure import Banks, Meter
from vgpu.emulator.program import LaunchRequest
from vgpu.memory import Memory

M0 = 125
ONLY_RACES = Checks(waits=False, barriers=False, uninitialised=False)


@pytest.mark.parametrize(("end", "size"), [("", 4), ("x3", 12), ("x4", 16)])
@pytest.mark.parametrize("base", ["off", "s[4:5]"])
def test_lanes_store_next_to_each_other_from_m0_on(end: str, size: int, base: str) -> None:
    bench, rng = Bench("gfx950"), np.random.default_rng(3)
    memory = rng.integers(0, 256, 64 * 32, dtype=np.uint8)
    bench.give(memory)
    bench.exec = 0xF0F0_0000_FFFF_00F5
    places = rng.permutation(64) * 16
    full = places.astype(np.uint64) + np.uint64(memory.ctypes.data if base == "off" else 0)
    bench.v[0], bench.v[1] = full.astype(np.uint32), (full >> np.uint64(32)).astype(np.uint32)
    bench.set_pair(4, memory.ctypes.data)
    bench.s[M0], bench.lds[:] = 256, 0xA5
    expected = bench.lds.copy()
    for lane in range(64):
        if bench.exec >> lane & 1:
            at = 256 + 32 + lane * size
            expected[at : at + size] = memory[places[lane] + 32 :][:size]
    bench.run(f"global_load_lds_dword{end} {'v[0:1]' if base == 'off' else 'v0'}, {base} offset:32")
    assert bench.wave.state == RUNNING
    assert np.array_equal(bench.lds, expected)


def test_neither_address_may_be_out_of_bounds() -> None:
    bench, memory = Bench("gfx950"), np.zeros(64, dtype=np.uint32)
    bench.give(memory)
    bench.set_pair(4, memory.ctypes.data)
    bench.v[0] = np.arange(64) * 4
    for m0, offset, code in ((4096 - 256, 0, 0), (4096 - 252, 0, 3), (0, 4, 1)):
        bench.s[M0] = m0
        bench.run(f"global_load_lds_dword v0, s[4:5] offset:{offset}")
        assert bench.wave.state == (FAULT if code else RUNNING)
        assert not code or (bench.fault.code, bench.fault.lane) == (code, 63)


# a wave loads 64 words to its part of LDS; then it reads its own part, or the other wave's
OWN = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
v_readfirstlane_b32 s8, v1
s_mov_b32 m0, s8
s_waitcnt lgkmcnt(0)
global_load_lds_dword v1, s[4:5]
s_waitcnt vmcnt(0)
ds_read_b32 v2, v1
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[6:7]
"""
OTHER = OWN.replace(
    "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1",
    "v_xor_b32_e32 v3, 0x100, v1\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v2, v3",
)
pytestmark = pytest.mark.compiler


def test_a_wave_waits_for_its_own_loads() -> None:
    assert np.array_equal(run(OWN, "gfx950", lds=512)[:128], np.arange(128))
    fault = caught(without(OWN, "s_waitcnt vmcnt(0)"), "gfx950", lds=512)
    assert fault.what == "kernel reads LDS at 0x0 before the load into it has been waited for"
    assert "loaded by line" in fault.cause
    assert "global_load_lds_dword v1, s[4:5]" in fault.cause
    overwritten = OWN.replace(
        "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1", "ds_write_b32 v1, v0\nds_read_b32 v2, v1"
    )
    assert "overwrites LDS at 0x0 before" in caught(overwritten, "gfx950", lds=512).what


def test_measured_as_loads() -> None:
    """Their accesses to LDS have no place among the segments of global memory."""
    program, meter = kernel(OWN, "gfx950", threads=128, lds=512), Meter(Banks())
    x, y = np.zeros(128, dtype=np.uint32), np.zeros(128, dtype=np.uint32)
    arguments, memory = [x.ctypes.data, y.ctypes.data], Memory({"x": x, "y": y})
    program.launch(LaunchRequest(grid=(1, 1, 1), arguments=arguments, memory=memory, meter=meter))
    assert meter.result is not None
    (line,) = [one for one in meter.result.lines if "load_lds" in one.line.name]
    assert (line.count, line.lanes, line.bytes, line.lds_cycles) == (2, 128, 4 * 128, 0)
    assert line.segments in {8, 10}  # each wave's 256 bytes need not begin with a segment


def test_later_loads_need_not_be_waited_for() -> None:
    """Loads complete in order: of two, the older is complete when one may be outstanding."""
    two = OWN.replace(
        "s_waitcnt vmcnt(0)", "s_add_i32 m0, s8, 0x200\nglobal_load_lds_dword v1, s[4:5]\ns_waitcnt vmcnt(1)"
    )
    assert np.array_equal(run(two, "gfx950", lds=1024)[:128], np.arange(128))
    second = two.replace("ds_read_b32 v2, v1", "ds_read_b32 v2, v1 offset:512")
    assert "reads LDS at 0x200 before" in caught(second, "gfx950", lds=1024).what


@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_other_waves_need_the_wait_and_a_barrier_behind_it(schedule: int | None) -> None:
    found = run(OTHER, "gfx950", lds=512, schedule=schedule)
    assert np.array_equal(found[:128], np.arange(128) ^ 64)
    options = {"lds": 512, "schedule": schedule, "checks": ONLY_RACES}
    assert "data race" in caught(without(OTHER, "s_barrier"), "gfx950", **options).what
    late = OTHER.replace("s_waitcnt vmcnt(0)\ns_barrier", "s_barrier\ns_waitcnt vmcnt(0)")
    fault = caught(late, "gfx950", **options)
    assert "data race" in fault.what
    assert "global_load_lds_dword" in fault.cause
    assert "which had not been waited for at the barrier" in fault.cause


def test_uninitialised_data_stays_uninitialised_in_lds() -> None:
    program = kernel(OWN, "gfx950", threads=128, lds=512)
    x, y = np.zeros(128, dtype=np.uint32), np.zeros(128, dtype=np.uint32)
    request = LaunchRequest(
        grid=(1, 1, 1), arguments=[x.ctypes.data, y.ctypes.data], memory=Memory({"x": x, "y": y}), checks=True
    )
    program.launch(request)
    with pytest.raises(ExecutionError, match="stores uninitialised data to global memory") as found:
        program.launch(
            LaunchRequest(
                grid=(1, 1, 1),
                arguments=[x.ctypes.data, y.ctypes.data],
                memory=Memory({"x": x, "y": y}),
                checks=Checks(unwritten=frozenset({"x"})),
            )
        )
    assert "global_load_lds_dword" in (found.value.cause or "")
    unset = OWN.replace("s_mov_b32 m0, s8\n", "")
    assert "uses uninitialised data as an address" in caught(unset, "gfx950", lds=512).what
