"""Every kernel on calls with every feature, interpreted with small blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.flash.call import Bias
from kernels.flash.mask_cases import mask_cases
from tests.integration.kernels.features import BASE, IN_PARTS, KERNELS, PROBLEMS, violations

LARGE = replace(BASE, dtype="bf16", seqlen_q=20, seqlen_k=37, draw="equal", sm_scale=0.25)
OF_ONE = replace(BASE, batch=2, bias=Bias(broadcast=(1, 2)))
FORWARD = {**PROBLEMS, "large scores": LARGE, "bias of one sequence": OF_ONE}
PREPROCESSED = (
    "narrower than the image", "several pieces", "causal", "grouped", "strides apart", "0.11's rows of L",
    "0x1313", "0x040b",
)  # fmt: skip
SERVED = {"attn_fwd": FORWARD, "bwd_preprocess": PREPROCESSED, "bwd_dk_dv": PROBLEMS, "bwd_dq": PROBLEMS}
MASK = {case.name: case for case in mask_cases({"dtype": 1})}
PACKED = {"BLOCK_M": 16, "BLOCK_N": 16, "PACKED": True}
GROUPED = replace(BASE, dtype="fp16", heads_q=10, heads_k=2, seqlen_q=3, mixed=True)


def test_every_kernel_is_compared() -> None:
    assert KERNELS.keys() == {*SERVED, "attn_dropout_mask"}


@pytest.mark.parametrize(
    ("kernel", "problem"), [(kernel, one) for kernel, all in SERVED.items() for one in all]
)
def test_features_agree_with_float64(kernel: str, problem: str) -> None:
    assert list(violations(kernel, FORWARD[problem])) == []


@pytest.mark.parametrize("problem", ["several pieces", "dropout and bias", "0x150b"])
@pytest.mark.parametrize("kernel", ["attn_fwd", "bwd_dk_dv", "bwd_dq"])
def test_results_in_parts_agree_with_float64(kernel: str, problem: str) -> None:
    """Of the forward pass also with queries that registers do not hold."""
    override = {**IN_PARTS, "STEP": 16} if kernel == "attn_fwd" else IN_PARTS
    assert list(violations(kernel, replace(PROBLEMS[problem], head_dim_v=40), override=override)) == []


@pytest.mark.parametrize("queries", [1, 2, 3, 9, 16])
def test_heads_that_share_a_block_agree_with_float64(queries: int) -> None:
    case = replace(GROUPED, seqlen_q=queries, window_left=20, window_right=30)
    assert list(violations("attn_fwd", case, override=PACKED)) == []


@pytest.mark.parametrize("call", MASK)
def test_masks_are_those_of_the_reference(call: str) -> None:
    assert list(violations("attn_dropout_mask", MASK[call].make(), override={})) == []
