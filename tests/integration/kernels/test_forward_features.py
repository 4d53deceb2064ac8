# ruff: noqa: E501 - one fault per line
"""The forward and the mask kernel on calls with every feature, interpreted with small blocks, and faults
planted in their sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.flash.call import Bias
from kernels.flash.mask_cases import mask_cases
from tests.integration.kernels.features import (
    BASE,
    IN_PARTS,
    PROBLEMS,
    every_third,
    is_found,
    planted,
    violations,
)

WITHOUT_QUERIES_IN_REGISTERS = {**IN_PARTS, "STEP": 16}
LARGE = replace(BASE, dtype="bf16", seqlen_q=20, seqlen_k=37, draw="equal", sm_scale=0.25)
FORWARD = {**PROBLEMS, "large scores": LARGE, "bias of one sequence": replace(BASE, batch=2, bias=Bias(broadcast=(1, 2)))}  # fmt: skip
MASK = {case.name: case for case in mask_cases({"dtype": 1})}


@pytest.mark.parametrize("problem", FORWARD)
def test_features_agree_with_float64(problem: str) -> None:
    assert list(violations("attn_fwd", FORWARD[problem])) == []


@pytest.mark.parametrize("problem", ["several pieces", "dropout and bias", "0x150b"])
def test_results_in_parts_agree_with_float64(problem: str) -> None:
    case = replace(PROBLEMS[problem], head_dim_v=40)
    assert list(violations("attn_fwd", case, override=WITHOUT_QUERIES_IN_REGISTERS)) == []


FAULTS = {
    "columns of padding read": ("tiles.py", "(column[None, :] < columns)\n        return", "(column[None, :] < columns + 1)\n        return", "narrower than the image"),
    "a piece at the wrong column": ("tiles.py", "first + piece_start(WIDTH, PIECE, i)", "first", "several pieces"),
    "columns of V by head_dim": ("forward.py", "stride_vn, start, n_k, head_dim_v, BLOCK_N", "stride_vn, start, n_k, head_dim, BLOCK_N", "narrower than the image"),
    "Q with Out's strides": ("forward.py", "Q += plane_q * stride_qz + head * stride_qh", "Q += plane_q * stride_oz + head * stride_oh", "strides apart"),
    "Out with Q's strides": ("forward.py", "Out += plane_q * stride_oz + head * stride_oh", "Out += plane_q * stride_qz + head * stride_qh", "strides apart"),
    "left bound off by one": ("forward.py", "low = tl.maximum(queries - window_left, 0)", "low = tl.maximum(queries - window_left + 1, 0)", "window"),
    "left bound ignored": ("forward.py", "low = tl.maximum(queries - window_left, 0)", "low = tl.zeros_like(queries)", "window"),
    "right bound ignored": ("forward.py", "tl.minimum(queries + window_right + 1, n_k)", "n_k", "window below the diagonal"),
    "first blocks of keys left out": ("forward.py", "begin = tl.minimum(tl.maximum(first - left, 0) // BLOCK, end)", "begin = tl.minimum(tl.cdiv(tl.maximum(first - left, 0), BLOCK), end)", "window"),
    "blocks before the window are complete": ("forward.py", "tl.cdiv(tl.maximum(last - left, 0), BLOCK)", "tl.maximum(last - left, 0) // BLOCK", "window and many queries"),
    "an early end leaves tiles unwritten": ("forward.py", "    empty = row_sum == 0.0\n", "    if begin == end:\n        return\n    empty = row_sum == 0.0\n", "window and many queries"),
    "rows without keys have a finite LSE": ("forward.py", 'lse = tl.where(empty, float("inf"), lse)', "lse = tl.where(empty, -2.4e38, lse)", "window below the diagonal"),
    "LSE past the last row": ("forward.py", "lse, mask=inside)", "lse, mask=queries < tl.cdiv(n_q, BLOCK_M) * BLOCK_M)", "window"),
    "LSE past the end of a sequence": ("forward.py", "lse, mask=inside)", "lse, mask=queries < seqlen_q)", "0x0202"),
    "a bias scaled like a score": ("forward.py", "scale = sm_scale if MASK", "scale = sm_scale * LOG2E if MASK", "bias"),
    "a bias in half precision": ("forward.py", "return tl.load(pointers).to(tl.float32)", "return tl.load(pointers).to(tl.bfloat16).to(tl.float32)", "bias"),
    "differences of a bias not scaled": ("forward.py", "p = tl.exp2((scores - shift[:, None]) * LOG2E)", "p = tl.exp2(scores * LOG2E - shift[:, None] * LOG2E)", "lowest bias"),
    "rows of -inf are not numbers": ("forward.py", 'shift = tl.where(new_max == -float("inf"), 0.0, new_max)', "shift = new_max", "masking bias"),
    "a bias for all sequences": ("forward.py", "B += batch * stride_bz", "B += 0 * stride_bz", "bias of one sequence"),
    "a bias for all heads": ("forward.py", "+ head * stride_bh", "+ 0 * stride_bh", "bias"),
    "the sum of what dropout keeps": ("forward.py", "    if DROPOUT:\n        p = ", "    row_sum -= tl.sum(p, 1) * DROPOUT * 0.1\n    if DROPOUT:\n        p = ", "dropout"),
    "Out without dropout's gain": ("forward.py", "(gain / row_sum)[:, None]", "(1.0 / row_sum)[:, None]", "dropout"),
    "one mask for all heads": ("forward.py", "plane = batch * num_head_q + head\n", "plane = batch * num_head_q\n", "dropout"),
    "a mask per key head": ("forward.py", "plane = batch * num_head_q + head\n", "plane = batch * num_head_q + head_k\n", "dropout"),
    "a mask of positions in the pack": ("forward.py", "dropout_key(philox_seed, philox_offset1, philox_offset2)", "dropout_key(philox_seed, philox_offset1, philox_offset2) + first_q.to(tl.uint64)", "dropout of packed sequences"),
    "an infinite gain": ("features.py", "tl.where(p < 1.0, 1.0 / (1.0 - p), 0.0)", "1.0 / (1.0 - p)", "dropout of everything"),
    "the second half of the offset left out": ("features.py", " + offset2 + 0x9E37", " + 0x9E37", "dropout"),
    "an offset without its second half is stored": ("forward.py", "tl.load(philox_offset1) + philox_offset2)", "tl.load(philox_offset1))", "dropout"),
    "a seed of calls without dropout is read": ("forward.py", "    if DROPOUT:\n        key", "    if True:\n        key", "window"),
    "lengths of the longest sequence": ("features.py", "length = tl.load(info0 + z + 1) - start", "length = longest", "0x0b0b"),
    "lengths of the longest sequence apart": ("features.py", "length = tl.load(info0 + z + 1) - tl.load(info0 + z)", "length = longest", "0x1313"),
    "the plane of a sequence's number": ("features.py", "            plane = 0\n            start = tl.load(info0 + z)\n", "            start = tl.load(info0 + z)\n", "0x0b0b"),
    "used keys ignored": ("features.py", "            length = tl.load(info0 + z)\n", "            length = longest\n", "0x150b"),
    "used keys of a cache ignored": ("features.py", "            length = tl.load(info0 + z)\n", "            length = longest\n", "0x040b"),
    "positions ignored": ("features.py", "start = tl.load(info1 + z)", "start = 0", "0x1313"),
    "keys in the queries' plane": ("forward.py", "K += plane_k * stride_kz", "K += plane_q * stride_kz", "0x000b"),
    "bottom-right of the longest lengths": ("forward.py", "window_of(window_left, window_right, n_q, n_k)", "window_of(window_left, window_right, seqlen_q, seqlen_k)", "0x0b0b"),
    "L by sequences where it is packed": ("forward.py", "first_q * lse_packed * stride_lm", "first_q * 0 * stride_lm", "0x1313"),
    "L packed where it has rows of its own": ("forward.py", "first_q * lse_packed * stride_lm", "first_q * stride_lm", "0.11's rows of L"),
    "a product that is rounded once": ("forward.py", "p = tl.exp2(scores - shift[:, None])", "p = tl.exp2(tl.fma(scores / scale, tl.zeros_like(scores) + scale * 1.0000001, -shift[:, None]))", "large scores"),
    "keys of the padding count": ("forward.py", "        scores = tl.where(seen, scores, -float(\"inf\"))\n", "", "low scores"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sources_have_the_line_of_every_fault(fault: str, tmp_path: Path) -> None:
    planted(tmp_path, *FAULTS[fault][:3])


@pytest.mark.parametrize("fault", every_third(FAULTS))
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    file, sound, faulty, problem = FAULTS[fault]
    planted(tmp_path, file, sound, faulty)
    assert is_found("attn_fwd", FORWARD[problem], tmp_path)


PACKED = {"BLOCK_M": 16, "BLOCK_N": 16, "PACKED": True}
GROUPED = replace(BASE, dtype="fp16", heads_q=10, heads_k=2, seqlen_q=3, mixed=True)
PACKED_FAULTS = {
    "heads of the next group": ("heads < group - member", "heads < group"),
    "queries of another head": ("rows = rows & ((1 << shift) - 1)", "rows = rows"),
    "the first head's row of L": ("heads * stride_lh + queries", "queries"),
    "too few rows for a head": ("(seqlen_q > 2).to(tl.int32)", "0"),
}


@pytest.mark.parametrize("queries", [1, 2, 3, 9, 16])
def test_heads_that_share_a_block_agree_with_float64(queries: int) -> None:
    case = replace(GROUPED, seqlen_q=queries, window_left=20, window_right=30)
    assert list(violations("attn_fwd", case, override=PACKED)) == []


@pytest.mark.parametrize("fault", PACKED_FAULTS)
def test_a_fault_in_the_packing_is_found(fault: str, tmp_path: Path) -> None:
    planted(tmp_path, "forward.py", *PACKED_FAULTS[fault])
    assert is_found("attn_fwd", GROUPED, tmp_path, PACKED)


MASK_FAULTS = {
    "one mask for all heads": ("dropout_mask.py", "batch * num_head_q + head,", "batch * num_head_q,", "contiguous"),
    "a mask of another tile": ("dropout_mask.py", "head, start_q, start_k", "head, start_q, 0", "contiguous"),
    "the second half of the offset left out": ("features.py", " + offset2 + 0x9E37", " + 0x9E37", "contiguous"),
    "columns past the end": ("dropout_mask.py", "(keys[None, :] < seqlen_k)", "(keys[None, :] <= seqlen_k)", "another order"),
    "a null state is read": ("features.py", "tl.load(seed, mask=seed.to(tl.int64) != 0, other=0)", "tl.load(seed)", "null state"),
    "nothing is kept of 1 - p": ("dropout_mask.py", "tl.where(keep != 0, 0.5, -0.5)", "tl.where(keep != 0, -0.5, 0.5)", "a rare drop"),
}  # fmt: skip


@pytest.mark.parametrize("call", MASK)
def test_masks_are_those_of_the_reference(call: str) -> None:
    assert list(violations("attn_dropout_mask", MASK[call].make(), override={})) == []


@pytest.mark.parametrize("fault", MASK_FAULTS)
def test_a_planted_fault_in_the_mask_is_found(fault: str, tmp_path: Path) -> None:
    file, sound, faulty, call = MASK_FAULTS[fault]
    planted(tmp_path, file, sound, faulty)
    assert is_found("attn_dropout_mask", MASK[call].make(), tmp_path, {})
