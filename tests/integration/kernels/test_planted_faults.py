# ruff: noqa: E501 - one fault per line
"""Faults planted in the kernels' source, one at a time: each must be caught by the comparison that the
numerics tests use.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.errors import ExecutionError
from tests.integration.kernels.attention_call import FOLDER, Case, Layout, run_case
from tests.integration.kernels.features import every_third
from tests.integration.kernels.test_attention_numerics import SMALL_BLOCKS, misses

CAUSAL = Case(seqlen_q=70, seqlen_k=60, heads_q=2, window_right=-10, layout=Layout(spare_rows=3))
FULL = Case(seqlen_q=37, seqlen_k=45, heads_q=4, heads_k=2, layout=Layout(spare_rows=3))

FAULTS = {
    "a tile one percent off": ("forward.py", "p.to(V.dtype.element_ty), v", "(p * 1.01).to(V.dtype.element_ty), v", FULL),
    "no rescaling": ("forward.py", "acc[i] * correction[:, None]", "acc[i] * 1.0", FULL),
    "sum not rescaled": ("forward.py", "row_sum * correction + ", "row_sum + ", FULL),
    "log-sum-exp to base 2": ("forward.py", "tl.log2(row_sum) * LN2", "tl.log2(row_sum)", FULL),
    "no rows without keys": ("forward.py", "tl.where(empty, 1.0, row_sum)", "row_sum", CAUSAL),
    "rows without keys have no infinity": ("forward.py", 'tl.where(empty, float("inf"), ', "tl.where(empty, 0.0, ", CAUSAL),
    "first maximum is not a number": ("forward.py", "== -float", "== float", CAUSAL),
    "heads not grouped": ("forward.py", "head_k * stride_kh", "head * stride_kh", FULL),
    "wrong group member": ("backward.py", "first_head = head_k * group", "first_head = head_k", FULL),
    "only one group member": ("backward.py", "for _ in range(0, group)", "for _ in range(0, 1)", FULL),
    "group members not advanced": ("backward.py", "        DO += stride_doh\n", "", FULL),
    "mask off by one": ("forward.py", "queries + window_right + 1, n_k", "queries + window_right, n_k", CAUSAL),
    "keys not masked": ("tiles.py", "mask=(start + row)[:, None] < limit, other=0.0", "mask=(start + row)[:, None] <= limit, other=0.0", FULL),
    "rows written too far": ("tiles.py", "inside = (start + row)[:, None] < limit\n", "inside = (start + row)[:, None] <= limit\n", FULL),
    "tail of LSE is zero": ("backward.py", 'n_q, float("inf"), BLOCK_M, MASKED', "n_q, -200.0, BLOCK_M, MASKED", FULL),
    "masked blocks skipped": ("backward.py", "masked = masked_before + end - end_full", "masked = masked_before", FULL),
    "masked blocks twice": ("backward.py", "end_full + index - masked_before)", "end_full + index)", CAUSAL),
    "complete blocks too early": ("backward.py", "tl.cdiv(tl.maximum(last_k - window_right, 0), BLOCK_M)", "(tl.maximum(last_k - window_right, 0) // BLOCK_M)", CAUSAL),
    "first block too late": ("backward.py", "tl.maximum(start_k - window_right, 0) // BLOCK_M, end", "tl.cdiv(tl.maximum(start_k - window_right, 0), BLOCK_M), end", CAUSAL),
    "keys cut short": ("forward.py", "last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1", "last_q = start_q", CAUSAL),
    "complete keys too many": ("forward.py", "return 0, 0, n_k // BLOCK,", "return 0, 0, tl.cdiv(n_k, BLOCK),", FULL),
    "dK not scaled": ("backward.py", "dk, sm_scale, BLOCK_N", "dk, 1.0, BLOCK_N", FULL),
    "D left out": ("backward.py", "p * (dp - delta)\n", "p * dp\n", FULL),
    "dQ without mask": ("backward.py", "spans[:, None].to(tl.uint32, bitcast=True), p, 0.0)", "2147483647, p, 0.0)", CAUSAL),
}  # fmt: skip


def worst(case: Case, folder: Path) -> float:
    outcome = run_case(case, folder=folder, override=SMALL_BLOCKS)
    if not all(tensor.intact() for tensor in outcome.tensors.values()):
        return float("inf")
    return max(misses(case, outcome).values())


@pytest.mark.parametrize("case", [CAUSAL, FULL], ids=["causal", "full"])
def test_the_sound_kernels_pass_what_the_faulty_ones_are_held_to(case: Case) -> None:
    assert worst(case, FOLDER) <= 1


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sources_have_the_line_of_every_fault(fault: str) -> None:
    file, sound, *_ = FAULTS[fault]
    assert sound in (FOLDER / file).read_text()


@pytest.mark.parametrize("fault", every_third(FAULTS))
def test_fault_is_caught(fault: str, tmp_path: Path) -> None:
    file, sound, faulty, case = FAULTS[fault]
    for source in FOLDER.glob("*.py"):
        shutil.copy(source, tmp_path)
    text = (tmp_path / file).read_text()
    assert sound in text
    (tmp_path / file).write_text(text.replace(sound, faulty))
    try:
        assert worst(case, tmp_path) > 1
    except ExecutionError:
        return
