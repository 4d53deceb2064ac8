"""Dual-issue pairs that hazards forbid: which are split, and that the split code computes the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.targets.amd.dual_issue import AFTER_DPP, PARITY, split_pairs

_REGISTERS = st.integers(0, 7).map("v{}".format)
_SOURCES = st.one_of(_REGISTERS, st.sampled_from(["s3", "vcc_lo", "0x42280000", "1.0", "-4"]))


@st.composite
def halves(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["add_f32", "mov_b32", "fmac_f32", "cndmask_b32", "fmaak_f32", "fmamk_f32"]))
    sources = [draw(_SOURCES)]
    if name != "mov_b32":
        sources.append(draw(_REGISTERS))
    if name.startswith("fma") and name != "fmac_f32":
        sources.insert(2 if name == "fmaak_f32" else 1, "0x3f000000")
    return f"v_dual_{name} {', '.join([draw(_REGISTERS), *sources])}"


def _effect(name: str, operands: list[str], before: dict[str, str]) -> tuple[str, str]:
    """The register that an instruction writes, and its value as a term of values before it."""
    name = name.removeprefix("v_dual_").removeprefix("v_")
    sources = [before.get(one, one) for one in operands[1:]]
    if name == "fmac_f32":
        sources.append(before[operands[0]])
    if name == "cndmask_b32" and len(operands) == 4:
        assert sources.pop() == "vcc_lo"
    return operands[0], f"{name}({';'.join(sources)})"


def _executed(text: str) -> dict[str, str]:
    """Registers after a text: both halves of a pair read before either writes."""
    state = {f"v{number}": f"start{number}" for number in range(8)}
    for line in text.splitlines():
        parts = [part.strip().split(maxsplit=1) for part in line.split("::")]
        found = [_effect(name, re.split(r",\s*", tail), state) for name, tail in parts]
        state |= dict(found)
    return state


@given(
    first=halves(), second=halves(), hazards=st.sampled_from([(PARITY,), (AFTER_DPP,), (PARITY, AFTER_DPP)])
)
def test_the_code_computes_the_same(first: str, second: str, hazards: tuple[str, ...]) -> None:
    if first.split()[1] == second.split()[1]:
        return  # hardware has no pair with one result
    pair = f"\t{first} :: {second}"
    # a DPP instruction behind the pair: its result counts as crossed wherever it is read
    text = f"{pair}\n\tv_add_f32_dpp v2, v2, v2 row_shr:1 row_mask:0xf bank_mask:0xf\n"
    try:
        made = split_pairs(text, hazards)
    except ValueError as error:
        assert "cannot be split" in str(error)
        return
    code = made.partition("\tv_add_f32_dpp")[0]
    assert _executed(code) == _executed(pair)
    assert made.endswith(text.partition("\n")[2])


@pytest.mark.parametrize(
    ("pair", "safe"),
    [
        ("v_dual_add_f32 v19, v24, v23 :: v_dual_add_f32 v24, v30, v29", False),  # both positions
        ("v_dual_add_f32 v19, v25, v23 :: v_dual_add_f32 v24, v30, v29", False),  # the second sources
        ("v_dual_add_f32 v19, v24, v22 :: v_dual_add_f32 v24, v30, v29", False),  # the first sources
        ("v_dual_add_f32 v19, v25, v22 :: v_dual_add_f32 v24, v30, v29", True),
        ("v_dual_add_f32 v19, s4, v22 :: v_dual_add_f32 v24, v30, v29", True),
        ("v_dual_mov_b32 v19, v25 :: v_dual_add_f32 v24, v30, v29", True),
        ("v_dual_mov_b32 v19, v26 :: v_dual_add_f32 v24, v30, v29", False),
        # the constant of fmamk is between its sources, that of fmaak behind them
        ("v_dual_fmamk_f32 v19, v25, 0x3f000000, v23 :: v_dual_add_f32 v24, v30, v29", False),
        ("v_dual_fmaak_f32 v19, v25, v22, 0x3f000000 :: v_dual_add_f32 v24, v30, v29", True),
    ],
)
def test_sources_of_one_position_and_parity_are_split(pair: str, *, safe: bool) -> None:
    made = split_pairs(f"\t{pair}\n", (PARITY,))
    assert ("::" in made) is safe
    assert split_pairs(f"\t{pair}\n", ()) == f"\t{pair}\n"


def test_a_select_names_its_condition() -> None:
    text = "\tv_dual_cndmask_b32 v1, v2, v4 :: v_dual_mov_b32 v0, v6\n"
    assert split_pairs(text, (PARITY,)) == "\tv_cndmask_b32 v1, v2, v4, vcc_lo\n\tv_mov_b32 v0, v6\n"


def test_only_readers_of_dpp_results_are_split() -> None:
    dpp = "\tv_permlanex16_b32 v4, v4, s0, s1\n\tv_max_f32_dpp v[6:7], v1, v2 row_shl:1\n"
    reads = "\tv_dual_add_f32 v0, v7, v2 :: v_dual_mov_b32 v1, v8\n"
    accumulates = "\tv_dual_fmac_f32 v4, v0, v1 :: v_dual_mov_b32 v5, v9\n"
    writes = "\tv_dual_mov_b32 v4, v1 :: v_dual_mov_b32 v7, v2\n"
    made = split_pairs(dpp + reads + accumulates + writes, (AFTER_DPP,))
    assert made.count("::") == 1 and made.endswith(writes)
    assert split_pairs(reads + accumulates + writes, (AFTER_DPP,)) == reads + accumulates + writes
