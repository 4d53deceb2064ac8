"""The peers err as rounding explains, and in no more than rounding: with float64 in every place they are the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aotforge.virtual_gpu.interpreter.number_formats import EPSILON, DType
from kernels.flash import same_precision_reference as same_precision
from kernels.flash.bounds import bounds
from kernels.flash.call import Case
from kernels.flash.reference import attention, attention_backward

BASE = Case(heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, sm_scale=0.2, batch=2)
CASES = [
    BASE,
    replace(BASE, window_right=0),
    replace(BASE, window_right=-20),  # rows without keys
    replace(BASE, seqlen_k=1),
    replace(BASE, seqlen_k=0),
    replace(BASE, seqlen_q=0),
    replace(BASE, seqlen_k=20, window_right=-30),
]
ORDERS = (None, 1, 7, 16)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_every_order_of_addition_is_within_the_rounding_analysis(case: Case, dtype: DType) -> None:
    case = replace(case, dtype=dtype)
    i = case.inputs()
    q, k, v, do = (i[name] for name in ("Q", "K", "V", "DO"))
    scale, window = case.sm_scale, case.window_right
    known = bounds(q, k, v, do, sm_scale=scale, window_right=window, dtype=dtype, given=True)
    forward = bounds(q, k, v, do, sm_scale=scale, window_right=window, dtype=dtype)
    for order in ORDERS:
        out, lse = same_precision.attention(
            q, k, v, sm_scale=scale, window_right=window, dtype=dtype, order=order
        )
        dq, dk, dv = same_precision.attention_backward(
            q, k, v, do, known["lse"].value, known["delta"].value,
            sm_scale=scale, window_right=window, dtype=dtype, order=order,
        )  # fmt: skip
        found = {"out": (forward["out"], out), "lse": (forward["lse"], lse)}
        found |= {"dq": (known["dq"], dq), "dk": (known["dk"], dk), "dv": (known["dv"], dv)}
        for name, (bounded, actual) in found.items():
            assert bounded.misses(actual).max(initial=0.0) <= 1, (name, order)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_peers_round_what_kernels_round(dtype: DType) -> None:
    """A peer that forgot to round P or dS would be far closer to float64 than the dtype allows."""
    case = replace(BASE, dtype=dtype, seqlen_q=64, seqlen_k=64)
    i = case.inputs()
    q, k, v, do = (i[name] for name in ("Q", "K", "V", "DO"))
    scale = case.sm_scale
    out, lse = attention(q, k, v, sm_scale=scale, window_right=None)
    exact = attention_backward(q, k, v, do, sm_scale=scale, window_right=None)
    found, _ = same_precision.attention(q, k, v, sm_scale=scale, window_right=None, dtype=dtype, order=None)
    grads = same_precision.attention_backward(
        q, k, v, do, lse, exact.delta, sm_scale=scale, window_right=None, dtype=dtype, order=None
    )
    for actual, right in zip((found, *grads), (out, exact.dq, exact.dk, exact.dv), strict=True):
        # storing alone would leave less than this over this many elements (rms of a rounding is EPSILON / sqrt(3) at most)
        relative = np.sqrt(np.mean((actual - right) ** 2) / np.mean(right**2))
        assert EPSILON[dtype] / 4 < relative < 4 * EPSILON[dtype]


def test_preprocessing_adds_in_float32() -> None:
    rng = np.random.default_rng(5)
    out, do = (rng.standard_normal((2, 3, 50, 64)).astype(np.float16).astype(np.float64) for _ in range(2))
    exact = (out * do).sum(axis=-1)
    size = np.abs(out * do).sum(axis=-1)
    for order in ORDERS:
        found = same_precision.preprocess(out, do, order=order)
        assert np.array_equal(found, found.astype(np.float32))
        assert np.all(np.abs(found - exact) <= 64 * 2.0**-24 * size)
    assert not np.array_equal(
        same_precision.preprocess(out, do, order=1), same_precision.preprocess(out, do, order=None)
    )
