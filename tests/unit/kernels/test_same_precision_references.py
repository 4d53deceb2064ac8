"""The peers err as rounding explains, and in no more than rounding: with float64 in every place they are the
reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from aotforge.verify.compare import Expected
from aotforge.verify.interpreter.number_formats import EPSILON, DType
from kernels.flash import same_precision_reference as same_precision
from kernels.flash.bounds import bounds
from kernels.flash.call import Bias, Case, Dropout
from kernels.flash.expectations import expected_of, known_of
from kernels.flash.problems import problems
from kernels.flash.reference import attention, attention_backward
from kernels.flash.same_precision_reference import Order
from kernels.flash_atomic.cases import cases

BASE = Case(heads_q=4, heads_k=2, seqlen_q=40, seqlen_k=33, sm_scale=0.2, batch=2)
CASES = [
    BASE,
    replace(BASE, window_right=0),
    replace(BASE, window_right=-20),  # rows without keys
    replace(BASE, seqlen_k=1),
    replace(BASE, seqlen_k=0),
    replace(BASE, seqlen_q=0),
    replace(BASE, seqlen_k=20, window_right=-30),
    replace(BASE, window_left=3, window_right=5),
    replace(BASE, window_left=-2, window_right=4),
    replace(BASE, head_dim=24, head_dim_v=40),
    replace(BASE, bias=Bias()),
    replace(BASE, bias=Bias(kind="masked", broadcast=(0, 1))),
    replace(BASE, bias=Bias(kind="lowest")),
    replace(BASE, bias=Bias(), sm_scale=0.0),
    replace(BASE, dropout=Dropout()),
    replace(BASE, dropout=Dropout(p=0.9), window_right=0),
    replace(BASE, dropout=Dropout(p=1.0)),
    replace(BASE, dropout=Dropout(p=0.5), bias=Bias(), head_dim_v=8),
    replace(BASE, draw="low"),
]
ORDERS = (Order(), Order(1), Order(7), Order(16), Order(1, 3), Order(16, bits=25))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_every_order_of_addition_is_within_the_rounding_analysis(case: Case, dtype: DType) -> None:
    case = replace(case, dtype=dtype)
    i = case.inputs()
    q, k, v, do = (i[name] for name in ("Q", "K", "V", "DO"))
    options = case.options(i)
    known = bounds(q, k, v, do, options, dtype=dtype, given=True)
    forward = bounds(q, k, v, do, options, dtype=dtype)
    for order, binary in zip(ORDERS, cycle((False, True))):
        out, lse = same_precision.attention(q, k, v, options, dtype=dtype, order=order, binary=binary)
        grads = same_precision.attention_backward(
            q, k, v, do, known["lse"].value, known["delta"].value, options, dtype=dtype, order=order,
            binary=binary
        )  # fmt: skip
        found = {"out": (forward["out"], out), "lse": (forward["lse"], lse)}
        found |= {n: (known[n], x) for n, x in zip(("dq", "dk", "dv", "db"), grads, strict=True)}
        for name, (bounded, actual) in found.items():
            assert bounded.misses(actual).max(initial=0.0) <= 1, (name, order, binary)


def test_heads_of_a_group_continue_one_sum() -> None:
    """The gradients of a key are those of one head with the queries of both, one product at a time."""
    case = replace(BASE, heads_q=2, heads_k=1, batch=1, dtype="fp32")
    known = known_of(case)
    q, k, v, do, lse, delta = (known[name] for name in ("Q", "K", "V", "DO", "L", "D"))
    two = same_precision.attention_backward(
        q, k, v, do, lse, delta, case.options(known), dtype="fp32", order=Order(1)
    )
    q, do, lse, delta = (x.reshape(1, 1, -1, *x.shape[3:]) for x in (q, do, lse, delta))
    one = same_precision.attention_backward(
        q, k, v, do, lse, delta, case.options(known), dtype="fp32", order=Order(1)
    )
    assert np.array_equal(two[1], one[1]) and np.array_equal(two[2], one[2])


def test_a_sum_that_begins_with_the_bias_has_larger_errors() -> None:
    case = replace(BASE, bias=Bias(), sm_scale=0.02, dtype="fp32")
    known = known_of(case)
    q, k, v, do, lse, delta = (known[name] for name in ("Q", "K", "V", "DO", "L", "D"))
    exact = attention_backward(q, k, v, do, case.options(known))

    def error(order: Order, *, first: bool) -> float:
        options = replace(case.options(known), factors_first=first)
        results = same_precision.attention_backward(
            q, k, v, do, lse, delta, options, dtype="fp32", order=order, binary=first
        )
        return float(np.sqrt(np.mean((results[2] - exact.dv) ** 2)))

    assert 1.5 * error(Order(1), first=False) < error(Order(1), first=True) < 1e-5
    assert error(Order(), first=True) < error(Order(1), first=True)


def test_probability_is_rounded_with_the_factor_of_dropout() -> None:
    """Each gradient of V is one rounded product, if one query attends."""
    case = replace(BASE, seqlen_q=1, heads_k=4, dropout=Dropout(), dtype="bf16")
    known = known_of(case)
    q, k, v, do, lse, delta = (known[name] for name in ("Q", "K", "V", "DO", "L", "D"))
    options = replace(case.options(known), factors_first=True)
    dv = same_precision.attention_backward(
        q, k, v, np.ones_like(do), lse, delta, options, dtype="bf16", order=Order(1)
    )[2]
    exact = attention_backward(q, k, v, np.ones_like(do), options).dv.astype(np.float32)
    assert np.array_equal(dv, same_precision.rounded(exact, "bf16"))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_peers_round_what_kernels_round(dtype: DType) -> None:
    """A peer that forgot to round P or dS would be far closer to float64 than the dtype allows."""
    case = replace(BASE, dtype=dtype, seqlen_q=64, seqlen_k=64)
    i = case.inputs()
    q, k, v, do = (i[name] for name in ("Q", "K", "V", "DO"))
    options = case.options(i)
    out, lse = attention(q, k, v, options)
    exact = attention_backward(q, k, v, do, options)
    found, _ = same_precision.attention(q, k, v, options, dtype=dtype, order=Order())
    grads = same_precision.attention_backward(
        q, k, v, do, lse, exact.delta, options, dtype=dtype, order=Order()
    )
    right = (out, exact.dq, exact.dk, exact.dv, exact.db)
    for actual, value in zip((found, *grads), right, strict=True):
        # storing alone would leave less than this over this many elements (rms of a rounding is EPSILON /
        # sqrt(3) at most)
        relative = np.sqrt(np.mean((actual - value) ** 2) / np.mean(value**2))
        assert EPSILON[dtype] / 4 < relative < 4 * EPSILON[dtype]


def test_equal_and_lowest_scores_give_the_average() -> None:
    """Whatever their size: the maximum is subtracted before anything else. Also with one key, whose
    probability is 1."""
    for case in (
        replace(BASE, dtype="bf16", draw="equal", head_dim=16),
        replace(BASE, dtype="bf16", bias=Bias(kind="lowest")),
        replace(BASE, dtype="fp32", seqlen_k=1, bias=Bias(kind="lowest")),
    ):
        i = case.inputs()
        out, _ = same_precision.attention(
            i["Q"], i["K"], i["V"], case.options(i), dtype=case.dtype, order=Order(7)
        )
        average = np.repeat(i["V"].mean(axis=2), 2, axis=1)
        np.testing.assert_allclose(out[:, :, 0], average, rtol=2.0**-8, atol=2.0**-8)


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
        same_precision.preprocess(out, do, order=Order(1)), same_precision.preprocess(out, do, order=Order())
    )


def test_each_product_of_small_numbers_may_be_rounded_to_a_subnormal_one() -> None:
    case = replace(BASE, dtype="fp32", head_dim=128, draw="small")
    known, expected = known_of(case), expected_of("bwd_preprocess", case)["D"]
    rounded = (known["Out"] * known["DO"]).astype(np.float32).astype(np.float64).sum(axis=-1)
    assert expected.compare(rounded).passed
    assert not expected.compare(rounded + 2.0**-150 * 2 * case.head_dim).passed


def test_additions_to_memory_may_make_zero_of_small_sums() -> None:
    every = cases("bwd_sums", {"dtype": 3, "head_dim": 64, "mask": 0})
    special = next(case.special for case in every if case.name == "negative scale")
    assert special
    expected = special().expected()["DQ_ACC"]
    assert isinstance(expected, Expected)
    value = expected.bounded.value
    flushed = np.where(np.abs(value) < 2.0**-126, 0.0, value)
    assert (flushed != value).any()
    assert expected.compare(flushed).passed
    assert not expected.compare(flushed * 1.1).passed


def test_cut_off_products_are_those_of_tensor_cores() -> None:
    """The largest errors are those of an H200 (docs/nvidia.md); they are more than twice those of sums that
    round."""
    keys = {"dtype": 3, "width": 128, "mask": 0, "dropout": 0}
    for kernel, output, error in (("bwd_dk_dv", "DK", 1.907e-6), ("bwd_dq", "DQ", 9.2e-7)):
        case = replace(dict(problems(kernel, keys))["one key, other"], dtype="bf16")
        want = expected_of(kernel, case)[output]
        assert want.cut_off is not None
        (cut,) = want.cut_off()
        rounds = want.compare(cut)
        assert rounds.error == pytest.approx(error, rel=2e-3)
        assert rounds.element <= 1 and rounds.tile <= 1 < rounds.tensor
        assert want.with_cut_off_sums.compare(cut).passed
    assert expected_of("bwd_dq", replace(case, dtype="fp32"))["DQ"].cut_off is None


def test_a_sum_keeps_bits_below_its_largest_term() -> None:
    """2^25 + 1 + 1 - 2^25: the ones are 25 bits below and kept by 25 bits, not by 24; the sum is then cut off
    to float32."""
    terms = np.array([[2.0**25, 1.0, 1.0, -(2.0**25)]], dtype=np.float32)
    ones = np.ones((4, 1), dtype=np.float32)
    kept = [float(same_precision._product(terms, ones, Order(4, bits=bits))[0, 0]) for bits in (24, 25)]
    assert kept == [0.0, 2.0]
    odd = np.array([[2.0**24, 1.0, 0.5, 0.0]], dtype=np.float32)
    for sign in (1, -1):
        assert same_precision._product(sign * odd, ones, Order(4, bits=25))[0, 0] == sign * 2.0**24


def test_powers_of_two_round_scores_in_another_place() -> None:
    """A kernel with scores in base 2 errs by what base 2 errs by: a bound from base e alone refused a correct
    fp32 image of one row."""
    case = replace(BASE, dtype="fp32", seqlen_q=1, seqlen_k=77)
    i = case.inputs()
    exact, _ = attention(i["Q"], i["K"], i["V"], case.options(i))
    outs = [
        same_precision.attention(
            i["Q"], i["K"], i["V"], case.options(i), dtype="fp32", order=Order(), binary=binary
        )[0]
        for binary in (False, True)
    ]
    assert not np.array_equal(outs[0], outs[1])
    for out in outs:
        np.testing.assert_allclose(out, exact, rtol=2.0**-16, atol=2.0**-20)
