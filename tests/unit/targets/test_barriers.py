"""Waits before barriers: where a block has not waited for LDS, and nowhere without the hazard."""

from __future__ import annotations

import pytest

from aotforge.targets.amd.barriers import LDS, wait_at_barriers

WAIT, BARRIER, STORE = "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_store_b128 v1, v[2:5]"


def text(*lines: str) -> str:
    return "".join(f"{line}\n" if line.endswith(":") else f"\t{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((STORE, BARRIER), (STORE, WAIT, BARRIER)),
        ((STORE, WAIT, BARRIER), (STORE, WAIT, BARRIER)),
        (
            (STORE, "s_waitcnt vmcnt(0) lgkmcnt(0)", BARRIER),
            (STORE, "s_waitcnt vmcnt(0) lgkmcnt(0)", BARRIER),
        ),
        ((WAIT, STORE, BARRIER), (WAIT, STORE, WAIT, BARRIER)),
        # what is outstanding where blocks meet is not known
        ((WAIT, ".LBB0_1:", BARRIER), (WAIT, ".LBB0_1:", WAIT, BARRIER)),
        ((WAIT, "s_waitcnt vmcnt(0)", BARRIER, BARRIER), (WAIT, "s_waitcnt vmcnt(0)", BARRIER, BARRIER)),
        ((STORE, "s_waitcnt lgkmcnt(1)", BARRIER), (STORE, "s_waitcnt lgkmcnt(1)", WAIT, BARRIER)),
    ],
)
def test_waits(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert wait_at_barriers(text(*before), [LDS]) == text(*after)
    assert wait_at_barriers(text(*before), ["dual-issue-parity"]) == text(*before)
