"""Special numbers: which there are, where they go, what of their results is defined; wrong images show."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import RulesError
from aotforge.verify.calls import Calls, Tensor
from aotforge.verify.compare import Expected
from aotforge.verify.interpreter.number_formats import DTYPES, DType, decode, encode, is_exact
from aotforge.verify.specials import ENOUGH, expectation, special_numbers, special_rows, with_specials

FLOATS = tuple(one for one in DTYPES if not is_exact(one))


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_numbers_of_wide_floats(dtype: DType) -> None:
    numbers = special_numbers(dtype)
    assert np.isposinf(numbers).any() and np.isneginf(numbers).any() and np.isnan(numbers).any()
    assert np.signbit(numbers[numbers == 0]).any() and not np.signbit(numbers[numbers == 0]).all()
    finite = numbers[np.isfinite(numbers)]
    again = decode(encode(finite, dtype), dtype)
    assert np.array_equal(again, finite)
    with np.errstate(over="ignore"):
        assert np.isinf(decode(encode(np.array([finite.max() * 1.01]), dtype), dtype)[0]) or dtype == "fp64"
    smallest = np.abs(finite[finite != 0]).min()
    assert decode(encode(np.array([smallest / 2.1]), dtype), dtype)[0] == 0 or dtype == "fp64"
    assert np.isfinite(special_numbers(dtype, "finite")).all()
    assert np.abs(special_numbers(dtype, "small")).max() <= 2


@pytest.mark.parametrize("dtype", ["fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16", "i8", "u8"])
def test_all_codes_of_8_bits_are_drawn(dtype: DType) -> None:
    drawn = (
        np.zeros(ENOUGH)
        if not is_exact(dtype)
        else np.zeros(ENOUGH, np.dtype("i1" if dtype == "i8" else "u1"))
    )
    stored = encode(with_specials(generator(), drawn, dtype), dtype).view(np.uint8)
    codes = np.arange(256, dtype=np.uint8)
    own = codes[~np.isnan(decode(codes.view(stored.dtype), dtype))] if not is_exact(dtype) else codes
    assert {*own.tolist()} <= {*stored.tolist()}
    assert is_exact(dtype) or np.isnan(decode(stored, dtype)).any()


def test_some_rows_have_one_special_number_and_one_argument_may_have_none() -> None:
    drawn = generator().standard_normal((30, 64))
    result = with_specials(generator(), drawn, "fp16")
    changed = (result != drawn) | np.isnan(result)
    assert (changed[:20].sum(axis=1) == 1).all() and (changed[20:].sum(axis=1) > 16).all()
    assert with_specials(generator(), drawn, "fp16", "none") is drawn
    assert np.isfinite(with_specials(generator(), drawn, "fp16", "finite")).all()


def test_rows_of_attention() -> None:
    rows = special_rows(generator().standard_normal((2, 8, 16)), "bf16", 1e30)
    assert (rows[:, 1] == 0).all() and np.signbit(rows[:, 1]).any()
    assert 0 < np.abs(rows[:, 2]).max() < 2.0**-126 and np.abs(rows[:, 3]).max() > 1e28
    assert np.isfinite(rows).all()


def _expected(values: list[float], peers: list[float], dtype: DType = "fp16") -> Expected:
    value = np.array([values])
    return expectation(value, np.abs(value) * 1e-3, [np.array([peers])], dtype, special=True)


def test_what_is_defined() -> None:
    nan, inf = np.nan, np.inf
    # a number beyond the type's is infinite; a peer that overflowed before leaves nothing to compare
    expected = _expected([nan, inf, 1e6, 1.0, 5.0], [nan, inf, inf, 1.0, inf])
    right = np.array([[nan, inf, inf, 1.0, 0.0]])
    assert expected.compare(right).passed
    for wrong in ([3.0, inf, inf, 1.0, 0.0], [nan, -inf, inf, 1.0, 0.0], [nan, inf, 65504.0, 1.0, 0.0],
                  [nan, inf, inf, 1.5, 0.0], [nan, inf, inf, nan, 0.0]):  # fmt: skip
        assert not expected.compare(np.array([wrong])).passed


def test_fp8_saturates_and_its_infinities_are_the_archs() -> None:
    expected = _expected([1e6, -1e6, np.inf], [57344.0, -57344.0, np.inf], "fp8e5")
    for last in (np.inf, 57344.0):
        assert expected.compare(np.array([[57344.0, -57344.0, last]])).passed
    assert not expected.compare(np.array([[np.inf, -57344.0, np.inf]])).passed


def test_a_call_of_a_family_has_them() -> None:
    calls = Calls(
        compute=lambda tensors, values, total: {"y": tensors["x"]},
        inputs={
            "x": Tensor(shape=("n",), dtype="fp8e5"),
            "z": Tensor(shape=("n",), dtype="fp16", specials="none"),
        },
        outputs={"y": Tensor(shape=("n",), dtype="bf16")},
        shapes=[{"n": 4}, {"n": 600}],
        typical={"n": 4},
    )  # fmt: skip
    case = calls.cases("k", {})[-1]
    assert case.special and case.elements == 600
    invocation = case.special()
    assert (
        np.isnan(invocation.inputs["x"].values()).any() and np.isfinite(invocation.inputs["z"].values()).all()
    )
    expected = invocation.expected()["y"]
    right = invocation.inputs["x"].values()
    assert expected.compare(right).passed
    # what Triton 3.9 does on AMD
    assert not expected.compare(np.where(np.isinf(right), np.sign(right) * 65536.0, right)).passed


def test_ordinary_calls_still_need_finite_peers() -> None:
    expected = expectation(np.ones((1, 1)), np.ones((1, 1)), [np.full((1, 1), np.inf)], "fp32")
    with pytest.raises(RulesError):
        expected.compare(np.ones((1, 1)))
