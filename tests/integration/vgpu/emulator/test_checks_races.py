"""LDS between barriers that all waves reach: two waves touch the same bytes only to read them, both by
atomics, or to store what is there already."""

from __future__ import annotations

import re

import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.handwritten import caught, run, without
from vgpu.emulator.decoded import Checks

pytestmark = pytest.mark.compiler
ONLY_RACES = Checks(waits=False, barriers=False, uninitialised=False)

SWAP = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
v_xor_b32_e32 v3, 0x100, v1
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v2, v3
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[6:7]
"""
AGAIN = SWAP + "s_barrier\nds_write_b32 v1, v2\n"


def test_a_barrier_between_store_and_load_is_enough() -> None:
    assert list(run(SWAP, lds=512)[:2]) == [64, 65]
    run(AGAIN, lds=512)


@pytest.mark.parametrize("schedule", [None, 1, 2, 3])
@pytest.mark.parametrize("number", [0, 1])
def test_every_barrier_is_needed_whatever_the_schedule(number: int, schedule: int | None) -> None:
    lines = AGAIN.splitlines()
    lines.pop([i for i, line in enumerate(lines) if line == "s_barrier"][number])
    fault = caught("\n".join(lines), lds=512, checks=ONLY_RACES, schedule=schedule)
    assert "has a data race in LDS: two waves touch the 4 bytes" in fault.what
    first, second = re.findall(r"wave (\d)", fault.cause)
    assert {first, second} == {"0", "1"}
    assert len(re.findall(r"line \d+: ds_(?:read|write)_b32", fault.cause)) == 2


def test_a_store_that_was_not_waited_for_at_the_barrier_continues_after_it() -> None:
    body = SWAP.replace("s_waitcnt lgkmcnt(0)\ns_barrier", "s_barrier")
    fault = caught(body, lds=512, checks=ONLY_RACES)
    assert "which had not been waited for at the barrier" in fault.cause
    assert "ds_write_b32" in fault.cause


def test_so_does_a_load() -> None:
    body = SWAP.replace(
        "s_waitcnt lgkmcnt(0)\nglobal", "s_barrier\nds_write_b32 v1, v3\ns_waitcnt lgkmcnt(0)\nglobal"
    )
    assert "which had not been waited for at the barrier" in caught(body, lds=512, checks=ONLY_RACES).cause
    run(
        body.replace(
            "s_barrier\nds_write_b32 v1, v3", "s_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v3"
        ),
        lds=512,
    )


@pytest.mark.parametrize("loads", [1, 700])
def test_a_store_meets_every_load_before_it(loads: int) -> None:
    """Loads are recorded when a store comes near, or when too many have been kept; wave 0 loads, then wave 1
    stores there."""
    body = "\n".join(
        [
            "v_lshlrev_b32_e32 v1, 2, v0",
            "v_xor_b32_e32 v3, 0x100, v1",
            *["ds_read_b32 v2, v1", "ds_read_b32 v4, v1 offset:512"] * loads,
            "s_waitcnt lgkmcnt(0)",
            "v_cmp_lt_u32_e32 vcc, 63, v0",
            "s_and_saveexec_b64 s[4:5], vcc",
            "ds_write_b32 v3, v0 offset:{}",
        ]
    )
    fault = caught(body.format(0), lds=2048, checks=ONLY_RACES)
    assert "data race" in fault.what and "ds_read_b32 v2" in fault.cause
    run(body.format(1024), lds=2048, checks=ONLY_RACES)


def test_what_one_wave_does_alone_is_no_race() -> None:
    run(without(SWAP, "s_barrier").replace("0x100", "0xc0"), lds=512)


def test_neighbouring_bytes_are_not_the_same_bytes() -> None:
    """Two waves share every dword, each stores its own half; then a dword access meets the other wave's
    half."""
    halves = """
    v_and_b32_e32 v1, 63, v0
    v_lshlrev_b32_e32 v1, 2, v1
    v_lshrrev_b32_e32 v2, 6, v0
    v_lshl_or_b32 v2, v2, 1, v1
    ds_write_b16 v2, v0
    s_waitcnt lgkmcnt(0)
    """
    run(halves, lds=512)
    assert "data race" in caught(halves + "ds_read_b32 v3, v1\n", lds=512, checks=ONLY_RACES).what


def test_waves_may_store_the_same_value_to_the_same_place() -> None:
    body = """
    v_and_b32_e32 v1, 63, v0
    v_lshlrev_b32_e32 v2, 2, v1
    ds_write_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    """
    run(body, lds=512)
    assert (
        "data race"
        in caught(
            body.replace("v2, v1\ns_wait", "v2, v0\ns_wait").replace(
                "ds_write_b32 v2, v1", "ds_write_b32 v2, v0"
            ),
            lds=512,
        ).what
    )


def test_atomics_do_not_race_with_atomics() -> None:
    body = """
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, 1
    v_cmp_gt_u32_e32 vcc, 64, v0
    s_and_saveexec_b64 s[4:5], vcc
    ds_write_b32 v1, v1
    s_mov_b64 exec, s[4:5]
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_add_u32 v1, v2
    s_waitcnt lgkmcnt(0)
    """
    run(body, lds=512)
    fault = caught(body + "ds_read_b32 v3, v1\n", lds=512)
    assert "data race" in fault.what
    assert "ds_add_u32" in fault.cause


# wave 0 goes one way, wave 1 another
SPLIT = """
v_readfirstlane_b32 s4, v0
s_cmp_lg_u32 s4, 0
s_cbranch_scc1 second
s_barrier
s_branch end
second:
s_barrier
end:
"""
GFX12 = """
v_readfirstlane_b32 s4, v0
s_cmp_lg_u32 s4, 0
s_barrier_signal -1
s_barrier_wait -1
"""


def test_waves_wait_at_one_barrier() -> None:
    run("s_barrier\ns_barrier")
    fault = caught(SPLIT)
    assert "waits at a barrier while wave 1 waits at another one" in fault.what
    assert fault.cause.count(": s_barrier") == 2
    run(SPLIT, checks=Checks(barriers=False))


@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_a_wave_that_has_ended_never_arrives(schedule: int | None) -> None:
    fault = caught(without(SPLIT, "second:\ns_barrier").replace("end:", "second:\nend:"), schedule=schedule)
    assert "waits at a barrier that wave 1 never reaches: it has ended" in fault.what
    assert "s_endpgm" in fault.cause


def test_a_split_barrier_is_signalled_once_and_then_waited_for() -> None:
    run(GFX12, "gfx1201", threads=64)
    missing = caught(without(GFX12, "s_barrier_signal -1"), "gfx1201", threads=64)
    assert "that it has not signalled" in missing.what
    twice = caught(
        GFX12.replace("s_barrier_signal -1", "s_barrier_signal -1\ns_barrier_signal -1"),
        "gfx1201",
        threads=64,
    )
    assert "signals a barrier twice" in twice.what


def test_other_barriers_than_the_workgroups_are_refused() -> None:
    with pytest.raises(DecodeError, match="only the workgroup's barrier"):
        run(GFX12.replace("wait -1", "wait -2"), "gfx1201", threads=64)


def test_a_split_barrier_orders_only_what_comes_before_the_signal() -> None:
    body = """
    v_lshlrev_b32_e32 v1, 2, v0
    v_xor_b32_e32 v3, 0x80, v1
    ds_store_b32 v1, v0
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    ds_load_b32 v2, v3
    """
    run(body, "gfx1201", threads=64, lds=512)
    late = body.replace(
        "    s_wait_dscnt 0x0\n    s_barrier_signal -1\n", "    s_barrier_signal -1\n    s_wait_dscnt 0x0\n"
    )
    assert "data race" in caught(late, "gfx1201", threads=64, lds=512).what
