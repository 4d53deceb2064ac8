"""Divergent barriers: all waves of a workgroup wait at the same one, and none has ended."""

from __future__ import annotations

import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.handwritten import caught, run, without
from vgpu.emulator.decoded import Checks

pytestmark = pytest.mark.compiler

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
