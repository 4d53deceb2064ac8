# ruff: noqa: E501 - one fault per line
"""The backward kernels on calls with every feature, interpreted with small blocks, and faults planted in
their sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.kernels.features import (
    IN_PARTS,
    KERNELS,
    PROBLEMS,
    every_third,
    is_found,
    planted,
    violations,
)

BACKWARD = [name for name, kernel in KERNELS.items() if kernel.operator == "attn_bwd"]
PREPROCESSED = (
    "narrower than the image",
    "several pieces",
    "strides apart",
    "0.11's rows of L",
    "0x1313",
    "0x040b",
)


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [(kernel, p) for kernel in BACKWARD for p in (PREPROCESSED if kernel == "bwd_preprocess" else PROBLEMS)],
)
def test_features_agree_with_float64(kernel: str, problem: str) -> None:
    assert list(violations(kernel, PROBLEMS[problem])) == []


@pytest.mark.parametrize("problem", ["several pieces", "dropout and bias", "0x150b"])
@pytest.mark.parametrize("kernel", ["bwd_dk_dv", "bwd_dq"])
def test_results_in_parts_agree_with_float64(kernel: str, problem: str) -> None:
    assert list(violations(kernel, replace(PROBLEMS[problem], head_dim_v=40), override=IN_PARTS)) == []


FAULTS = {
    "columns of padding read": ("tiles.py", "(column[None, :] < columns)\n        return", "(column[None, :] < columns + 1)\n        return", "bwd_dk_dv", "narrower than the image"),
    "a piece at the wrong column": ("tiles.py", "first + piece_start(WIDTH, PIECE, i)", "first", "bwd_dq", "several pieces"),
    "columns of V by head_dim": ("backward.py", "stride_vn, start_k, n_k, head_dim_v, BLOCK_N", "stride_vn, start_k, n_k, head_dim, BLOCK_N", "bwd_dk_dv", "narrower than the image"),
    "DO with Out's strides": ("backward.py", "DO += plane * stride_doz + head * stride_doh", "DO += plane * stride_oz + head * stride_oh", "bwd_preprocess", "strides apart"),
    "left bound off by one": ("backward.py", "lows = queries - window_left", "lows = queries - window_left + 1", "bwd_dq", "window"),
    "left bound ignored": ("backward.py", "low = -window_left", "low = -1000000", "bwd_dk_dv", "window"),
    "last blocks of queries left out": ("backward.py", "tl.minimum(last_k + window_left + 1, n_q)", "tl.minimum(start_k + window_left + 1, n_q)", "bwd_dk_dv", "window and many queries"),
    "first blocks of keys left out": ("backward.py", "tl.maximum(start_q - window_left, 0) // BLOCK_N", "tl.cdiv(tl.maximum(start_q - window_left, 0), BLOCK_N)", "bwd_dq", "window"),
    "dB with sm_scale": ("backward.py", "stride_dbn), ds, mask", "stride_dbn), (ds * sm_scale).to(ds.dtype), mask", "bwd_dq", "bias"),
    "a bias scaled like a score": ("backward.py", "(dots * sm_scale + bias - lse) * LOG2E", "((dots + bias) * sm_scale - lse) * LOG2E", "bwd_dk_dv", "masking bias"),
    "a bias in base 2": ("backward.py", "(dots * sm_scale + bias - lse) * LOG2E", "dots * sm_scale * LOG2E + (bias * LOG2E - lse * LOG2E)", "bwd_dq", "lowest bias"),
    "the bias divided by sm_scale": ("backward.py", "dots * sm_scale + bias - lse", "(dots + bias / sm_scale) * sm_scale - lse", "bwd_dq", "bias, scale 0"),
    "dP without dropout": ("backward.py", "only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), dp * gain)", "dp", "bwd_dq", "dropout"),
    "dV without its gain": ("backward.py", "dv, gain, BLOCK_N", "dv, 1.0, BLOCK_N", "bwd_dk_dv", "dropout"),
    "a mask per key head": ("backward.py", "        plane += 1\n", "", "bwd_dk_dv", "dropout"),
    "an infinite gain": ("features.py", "tl.where(p < 1.0, 1.0 / (1.0 - p), 0.0)", "1.0 / (1.0 - p)", "bwd_dk_dv", "dropout of everything"),
    "the second half of the offset left out": ("features.py", " + offset2 + 0x9E37", " + 0x9E37", "bwd_dq", "dropout and bias"),
    "columns of random numbers in another order": ("features.py", "tl.join(r0, r2), tl.join(r1, r3)", "tl.join(r0, r1), tl.join(r2, r3)", "bwd_dq", "dropout"),
    "a mask of positions in the pack": ("backward.py", "dropout_key(philox_seed, philox_offset1, philox_offset2)", "dropout_key(philox_seed, philox_offset1, philox_offset2) + first_q.to(tl.uint64)", "bwd_dq", "dropout of packed sequences"),
    "lengths of the longest sequence": ("features.py", "length = tl.load(info0 + z + 1) - start", "length = longest", "bwd_dq", "0x0b0b"),
    "lengths of the longest sequence apart": ("features.py", "length = tl.load(info0 + z + 1) - tl.load(info0 + z)", "length = longest", "bwd_dq", "0x1313"),
    "the plane of a sequence's number": ("features.py", "            plane = 0\n            start = tl.load(info0 + z)\n", "            start = tl.load(info0 + z)\n", "bwd_dq", "0x0b0b"),
    "positions ignored": ("features.py", "start = tl.load(info1 + z)", "start = 0", "bwd_dk_dv", "0x150b"),
    "keys in the queries' plane": ("backward.py", "K += plane_k * stride_kz", "K += plane_q * stride_kz", "bwd_dq", "0x000b"),
    "bottom-right of the longest lengths": ("backward.py", "window_of(window_left, window_right, n_q, n_k)", "window_of(window_left, window_right, seqlen_q, seqlen_k)", "bwd_dk_dv", "0x0202"),
    "L by sequences where it is packed": ("backward.py", "L += first_q * lse_packed * stride_lm", "L += first_q * 0 * stride_lm", "bwd_dq", "0x1313"),
    "L packed where it has rows of its own": ("backward.py", "D += first * lse_packed * stride_dm", "D += first * stride_dm", "bwd_preprocess", "0.11's rows of L"),
    "keys of the padding count": ("backward.py", "    if MASKED:\n        # a query sees `spans`", "    if False:\n        # a query sees `spans`", "bwd_dq", "low scores"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sources_have_the_line_of_every_fault(fault: str, tmp_path: Path) -> None:
    planted(tmp_path, *FAULTS[fault][:3])


@pytest.mark.parametrize("fault", every_third(FAULTS))
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    file, sound, faulty, kernel, problem = FAULTS[fault]
    planted(tmp_path, file, sound, faulty)
    assert is_found(kernel, PROBLEMS[problem], tmp_path)
