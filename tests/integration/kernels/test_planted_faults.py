# ruff: noqa: E501 - one fault per line
"""Faults planted in the kernels' sources, one at a time: the verifier's comparison finds each, by a problem
that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.kernels.features import SMALL, is_found, planted
from tests.integration.kernels.test_features import FORWARD, GROUPED, MASK, PACKED
from tests.integration.kernels.test_field_calls import CALLS

FAULTS = {
    "columns of padding read": ("tiles.py", "(column[None, :] < columns)\n        return", "(column[None, :] < columns + 1)\n        return", "attn_fwd", "narrower than the image"),
    "a piece at the wrong column": ("tiles.py", "first + piece_start(WIDTH, PIECE, i)", "first", "attn_fwd", "several pieces"),
    "columns of V by head_dim": ("forward.py", "stride_vn, start, n_k, head_dim_v, BLOCK_N", "stride_vn, start, n_k, head_dim, BLOCK_N", "attn_fwd", "narrower than the image"),
    "Q with Out's strides": ("forward.py", "Q += plane_q * stride_qz + head * stride_qh", "Q += plane_q * stride_oz + head * stride_oh", "attn_fwd", "strides apart"),
    "Out with Q's strides": ("forward.py", "Out += plane_q * stride_oz + head * stride_oh", "Out += plane_q * stride_qz + head * stride_qh", "attn_fwd", "strides apart"),
    "left bound off by one": ("forward.py", "low = tl.maximum(queries - window_left, 0)", "low = tl.maximum(queries - window_left + 1, 0)", "attn_fwd", "window"),
    "left bound ignored": ("forward.py", "low = tl.maximum(queries - window_left, 0)", "low = tl.zeros_like(queries)", "attn_fwd", "window"),
    "right bound ignored": ("forward.py", "tl.minimum(queries + window_right + 1, n_k)", "n_k", "attn_fwd", "window below the diagonal"),
    "first blocks of keys left out": ("forward.py", "begin = tl.minimum(tl.maximum(first - left, 0) // BLOCK, end)", "begin = tl.minimum(tl.cdiv(tl.maximum(first - left, 0), BLOCK), end)", "attn_fwd", "window"),
    "blocks before the window are complete": ("forward.py", "tl.cdiv(tl.maximum(last - left, 0), BLOCK)", "tl.maximum(last - left, 0) // BLOCK", "attn_fwd", "window and many queries"),
    "an early end leaves tiles unwritten": ("forward.py", "    empty = row_sum == 0.0\n", "    if begin == end:\n        return\n    empty = row_sum == 0.0\n", "attn_fwd", "window and many queries"),
    "rows without keys have a finite LSE": ("forward.py", 'lse = tl.where(empty, float("inf"), lse)', "lse = tl.where(empty, -2.4e38, lse)", "attn_fwd", "window below the diagonal"),
    "LSE past the last row": ("forward.py", "lse, mask=inside)", "lse, mask=queries < tl.cdiv(n_q, BLOCK_M) * BLOCK_M)", "attn_fwd", "window"),
    "LSE past the end of a sequence": ("forward.py", "lse, mask=inside)", "lse, mask=queries < seqlen_q)", "attn_fwd", "0x0202"),
    "a bias scaled like a score": ("forward.py", "scale = sm_scale if MASK", "scale = sm_scale * LOG2E if MASK", "attn_fwd", "bias"),
    "a bias in half precision": ("forward.py", "return tl.load(pointers).to(tl.float32)", "return tl.load(pointers).to(tl.bfloat16).to(tl.float32)", "attn_fwd", "bias"),
    "differences of a bias not scaled": ("forward.py", "p = tl.exp2((scores - shift[:, None]) * LOG2E)", "p = tl.exp2(scores * LOG2E - shift[:, None] * LOG2E)", "attn_fwd", "lowest bias"),
    "rows of -inf are not numbers": ("forward.py", 'shift = tl.where(new_max == -float("inf"), 0.0, new_max)', "shift = new_max", "attn_fwd", "masking bias"),
    "a bias for all sequences": ("forward.py", "B += batch * stride_bz", "B += 0 * stride_bz", "attn_fwd", "bias of one sequence"),
    "a bias for all heads": ("forward.py", "+ head * stride_bh", "+ 0 * stride_bh", "attn_fwd", "bias"),
    "the sum of what dropout keeps": ("forward.py", "    if DROPOUT:\n        p = ", "    row_sum -= tl.sum(p, 1) * DROPOUT * 0.1\n    if DROPOUT:\n        p = ", "attn_fwd", "dropout"),
    "Out without dropout's gain": ("forward.py", "(gain / row_sum)[:, None]", "(1.0 / row_sum)[:, None]", "attn_fwd", "dropout"),
    "one mask for all heads": ("forward.py", "plane = batch * num_head_q + head\n", "plane = batch * num_head_q\n", "attn_fwd", "dropout"),
    "a mask per key head": ("forward.py", "plane = batch * num_head_q + head\n", "plane = batch * num_head_q + head_k\n", "attn_fwd", "dropout"),
    "a mask of positions in the pack": ("forward.py", "dropout_key(philox_seed, philox_offset1, philox_offset2)", "dropout_key(philox_seed, philox_offset1, philox_offset2) + first_q.to(tl.uint64)", "attn_fwd", "dropout of packed sequences"),
    "an infinite gain": ("features.py", "tl.where(p < 1.0, 1.0 / (1.0 - p), 0.0)", "1.0 / (1.0 - p)", "attn_fwd", "dropout of everything"),
    "the second half of the offset left out": ("features.py", " + offset2 + 0x9E37", " + 0x9E37", "attn_fwd", "dropout"),
    "an offset without its second half is stored": ("forward.py", "tl.load(philox_offset1) + philox_offset2)", "tl.load(philox_offset1))", "attn_fwd", "dropout"),
    "a seed of calls without dropout is read": ("forward.py", "    if DROPOUT:\n        key", "    if True:\n        key", "attn_fwd", "window"),
    "lengths of the longest sequence": ("features.py", "length = tl.load(info0 + z + 1) - start", "length = longest", "attn_fwd", "0x0b0b"),
    "lengths of the longest sequence apart": ("features.py", "length = tl.load(info0 + z + 1) - tl.load(info0 + z)", "length = longest", "attn_fwd", "0x1313"),
    "the plane of a sequence's number": ("features.py", "            plane = 0\n            start = tl.load(info0 + z)\n", "            start = tl.load(info0 + z)\n", "attn_fwd", "0x0b0b"),
    "used keys ignored": ("features.py", "            length = tl.load(info0 + z)\n", "            length = longest\n", "attn_fwd", "0x150b"),
    "positions ignored": ("features.py", "start = tl.load(info1 + z)", "start = 0", "attn_fwd", "0x1313"),
    "keys in the queries' plane": ("forward.py", "K += plane_k * stride_kz", "K += plane_q * stride_kz", "attn_fwd", "0x000b"),
    "bottom-right of the longest lengths": ("forward.py", "window_of(window_left, window_right, n_q, n_k)", "window_of(window_left, window_right, seqlen_q, seqlen_k)", "attn_fwd", "0x0b0b"),
    "L by sequences where it is packed": ("forward.py", "first_q * lse_packed * stride_lm", "first_q * 0 * stride_lm", "attn_fwd", "0x1313"),
    "L packed where it has rows of its own": ("forward.py", "first_q * lse_packed * stride_lm", "first_q * stride_lm", "attn_fwd", "0.11's rows of L"),
    "a product that is rounded once": ("forward.py", "p = tl.exp2(scores - shift[:, None])", "p = tl.exp2(tl.fma(scores / scale, tl.zeros_like(scores) + scale * 1.0000001, -shift[:, None]))", "attn_fwd", "large scores"),
    "keys of the padding count": ("forward.py", "        scores = tl.where(seen, scores, -float(\"inf\"))\n", "", "attn_fwd", "low scores"),
    "columns of V by head_dim, bwd_dk_dv": ("backward.py", "stride_vn, start_k, n_k, head_dim_v, BLOCK_N", "stride_vn, start_k, n_k, head_dim, BLOCK_N", "bwd_dk_dv", "narrower than the image"),
    "DO with Out's strides": ("backward.py", "DO += plane * stride_doz + head * stride_doh", "DO += plane * stride_oz + head * stride_oh", "bwd_preprocess", "strides apart"),
    "left bound off by one, bwd_dq": ("backward.py", "lows = queries - window_left", "lows = queries - window_left + 1", "bwd_dq", "window"),
    "left bound ignored, bwd_dk_dv": ("backward.py", "low = -window_left", "low = -1000000", "bwd_dk_dv", "window"),
    "last blocks of queries left out": ("backward.py", "tl.minimum(last_k + window_left + 1, n_q)", "tl.minimum(start_k + window_left + 1, n_q)", "bwd_dk_dv", "window and many queries"),
    "first blocks of keys left out, bwd_dq": ("backward.py", "tl.maximum(start_q - window_left, 0) // BLOCK_N", "tl.cdiv(tl.maximum(start_q - window_left, 0), BLOCK_N)", "bwd_dq", "window"),
    "dB with sm_scale": ("backward.py", "stride_dbn), ds, mask", "stride_dbn), (ds * sm_scale).to(ds.dtype), mask", "bwd_dq", "bias"),
    "a bias scaled like a score, bwd_dk_dv": ("backward.py", "(dots * sm_scale + bias - lse) * LOG2E", "((dots + bias) * sm_scale - lse) * LOG2E", "bwd_dk_dv", "masking bias"),
    "a bias in base 2": ("backward.py", "(dots * sm_scale + bias - lse) * LOG2E", "dots * sm_scale * LOG2E + (bias * LOG2E - lse * LOG2E)", "bwd_dq", "lowest bias"),
    "the bias divided by sm_scale": ("backward.py", "dots * sm_scale + bias - lse", "(dots + bias / sm_scale) * sm_scale - lse", "bwd_dq", "bias, scale 0"),
    "dP without dropout": ("backward.py", "only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), dp * gain)", "dp", "bwd_dq", "dropout"),
    "dV without its gain": ("backward.py", "dv, gain, BLOCK_N", "dv, 1.0, BLOCK_N", "bwd_dk_dv", "dropout"),
    "a mask per key head, bwd_dk_dv": ("backward.py", "        plane += 1\n", "", "bwd_dk_dv", "dropout"),
    "columns of random numbers in another order": ("features.py", "tl.join(r0, r2), tl.join(r1, r3)", "tl.join(r0, r1), tl.join(r2, r3)", "bwd_dq", "dropout"),
    "a mask of positions in the pack, bwd_dq": ("backward.py", "dropout_key(philox_seed, philox_offset1, philox_offset2)", "dropout_key(philox_seed, philox_offset1, philox_offset2) + first_q.to(tl.uint64)", "bwd_dq", "dropout of packed sequences"),
    "keys in the queries' plane, bwd_dq": ("backward.py", "K += plane_k * stride_kz", "K += plane_q * stride_kz", "bwd_dq", "0x000b"),
    "bottom-right of the longest lengths, bwd_dk_dv": ("backward.py", "window_of(window_left, window_right, n_q, n_k)", "window_of(window_left, window_right, seqlen_q, seqlen_k)", "bwd_dk_dv", "0x0202"),
    "L by sequences where it is packed, bwd_dq": ("backward.py", "L += first_q * lse_packed * stride_lm", "L += first_q * 0 * stride_lm", "bwd_dq", "0x1313"),
    "L packed where it has rows of its own, bwd_preprocess": ("backward.py", "D += first * lse_packed * stride_dm", "D += first * stride_dm", "bwd_preprocess", "0.11's rows of L"),
    "keys of the padding count, bwd_dq": ("backward.py", "    if MASKED:\n        # a query sees `spans`", "    if False:\n        # a query sees `spans`", "bwd_dq", "low scores"),
    "a tile one percent off": ("forward.py", "p.to(V.dtype.element_ty), v", "(p * 1.01).to(V.dtype.element_ty), v", "attn_fwd", "grouped"),
    "no rescaling": ("forward.py", "acc[i] * correction[:, None]", "acc[i] * 1.0", "attn_fwd", "grouped"),
    "sum not rescaled": ("forward.py", "row_sum * correction + ", "row_sum + ", "attn_fwd", "grouped"),
    "log-sum-exp to base 2": ("forward.py", "tl.log2(row_sum) * LN2", "tl.log2(row_sum)", "attn_fwd", "grouped"),
    "no rows without keys": ("forward.py", "tl.where(empty, 1.0, row_sum)", "row_sum", "attn_fwd", "causal"),
    "rows without keys have no infinity": ("forward.py", 'tl.where(empty, float("inf"), ', "tl.where(empty, 0.0, ", "attn_fwd", "causal"),
    "first maximum is not a number": ("forward.py", "== -float", "== float", "attn_fwd", "causal"),
    "heads not grouped": ("forward.py", "head_k * stride_kh", "head * stride_kh", "attn_fwd", "grouped"),
    "wrong group member": ("backward.py", "first_head = head_k * group", "first_head = head_k", "bwd_dk_dv", "grouped"),
    "only one group member": ("backward.py", "for _ in range(0, group)", "for _ in range(0, 1)", "bwd_dk_dv", "grouped"),
    "group members not advanced": ("backward.py", "        DO += stride_doh\n", "", "bwd_dk_dv", "grouped"),
    "mask off by one": ("forward.py", "queries + window_right + 1, n_k", "queries + window_right, n_k", "attn_fwd", "causal"),
    "keys not masked": ("tiles.py", "mask=(start + row)[:, None] < limit, other=0.0", "mask=(start + row)[:, None] <= limit, other=0.0", "attn_fwd", "grouped"),
    "rows written too far": ("tiles.py", "inside = (start + row)[:, None] < limit\n", "inside = (start + row)[:, None] <= limit\n", "attn_fwd", "grouped"),
    "tail of LSE is zero": ("backward.py", 'n_q, float("inf"), BLOCK_M, MASKED', "n_q, -200.0, BLOCK_M, MASKED", "bwd_dk_dv", "grouped"),
    "masked blocks skipped": ("backward.py", "masked = masked_before + end - end_full", "masked = masked_before", "bwd_dk_dv", "grouped"),
    "masked blocks twice": ("backward.py", "end_full + index - masked_before)", "end_full + index)", "bwd_dk_dv", "causal"),
    "complete blocks too early": ("backward.py", "tl.cdiv(tl.maximum(last_k - window_right, 0), BLOCK_M)", "(tl.maximum(last_k - window_right, 0) // BLOCK_M)", "bwd_dk_dv", "causal"),
    "first block too late": ("backward.py", "tl.maximum(start_k - window_right, 0) // BLOCK_M, end", "tl.cdiv(tl.maximum(start_k - window_right, 0), BLOCK_M), end", "bwd_dk_dv", "causal"),
    "keys cut short": ("forward.py", "last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1", "last_q = start_q", "attn_fwd", "causal"),
    "complete keys too many": ("forward.py", "return 0, 0, n_k // BLOCK,", "return 0, 0, tl.cdiv(n_k, BLOCK),", "attn_fwd", "grouped"),
    "dK not scaled": ("backward.py", "dk, sm_scale, BLOCK_N", "dk, 1.0, BLOCK_N", "bwd_dk_dv", "grouped"),
    "D left out": ("backward.py", "p * (dp - delta)\n", "p * dp\n", "bwd_dk_dv", "grouped"),
    "dQ without mask": ("backward.py", "spans[:, None].to(tl.uint32, bitcast=True), p, 0.0)", "2147483647, p, 0.0)", "bwd_dq", "causal"),
    "probabilities rounded to the type before their sum": ("forward.py", "tl.sum(p, 1)", "tl.sum(p.to(tl.float16).to(tl.float32), 1)", "attn_fwd", "fp32, head_dim 80, causal"),
    "V with K's strides": ("forward.py", "head_k * stride_vh", "head_k * stride_kh", "attn_fwd", "V is a view of (batch, rows, heads, head_dim)"),
    "heads of the next group": ("forward.py", "heads < group - member", "heads < group", "attn_fwd", "heads in a block"),
    "queries of another head": ("forward.py", "rows = rows & ((1 << shift) - 1)", "rows = rows", "attn_fwd", "heads in a block"),
    "the first head's row of L": ("forward.py", "heads * stride_lh + queries", "queries", "attn_fwd", "heads in a block"),
    "too few rows for a head": ("forward.py", "(seqlen_q > 2).to(tl.int32)", "0", "attn_fwd", "heads in a block"),
    "one mask for all heads, attn_dropout_mask": ("dropout_mask.py", "batch * num_head_q + head,", "batch * num_head_q,", "attn_dropout_mask", "contiguous"),
    "a mask of another tile": ("dropout_mask.py", "head, start_q, start_k", "head, start_q, 0", "attn_dropout_mask", "contiguous"),
    "columns past the end": ("dropout_mask.py", "(keys[None, :] < seqlen_k)", "(keys[None, :] <= seqlen_k)", "attn_dropout_mask", "another order"),
    "a null state is read": ("features.py", "tl.load(seed, mask=seed.to(tl.int64) != 0, other=0)", "tl.load(seed)", "attn_dropout_mask", "null state"),
    "nothing is kept of 1 - p": ("dropout_mask.py", "tl.where(keep != 0, 0.5, -0.5)", "tl.where(keep != 0, -0.5, 0.5)", "attn_dropout_mask", "a rare drop"),
}  # fmt: skip
"""File, sound text, faulty text, kernel and problem."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sources_have_the_line_of_every_fault(fault: str, tmp_path: Path) -> None:
    planted(tmp_path, *FAULTS[fault][:3])


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.slow] if n % 3 else []) for n, fault in enumerate(FAULTS)],
)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """A third by default, the others among the slow tests: they test the comparison, which itself is made of
    every feature by default."""
    file, sound, faulty, kernel, problem = FAULTS[fault]
    planted(tmp_path, file, sound, faulty)
    if kernel == "attn_dropout_mask":
        assert is_found(kernel, MASK[problem].make(), tmp_path, {})
    elif problem == "heads in a block":
        assert is_found(kernel, GROUPED, tmp_path, PACKED)
    else:
        assert is_found(kernel, {**FORWARD, **CALLS}[problem], tmp_path, SMALL)
