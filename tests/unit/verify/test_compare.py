"""The verdict rule: correct rounding passes; one percent, unwritten elements and what the precision does not
explain fail."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import RulesError
from aotforge.verify.compare import Bounded, Comparison, Expected, unit_in_last_place
from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.tensors import Float

DTYPES: tuple[DType, ...] = ("fp16", "bf16", "fp32")


def stored(x: Float, dtype: DType) -> Float:
    return decode(encode(x, dtype), dtype)


def expected(value: Float, *, dtype: DType = "bf16", error: float = 0.02) -> Expected:
    """A computation whose only error is that its result is rounded."""
    return Expected(
        bounded=Bounded(value=value, error=error * np.abs(value)),
        same_precision=[stored(value, dtype)],
        dtype=dtype,
    )


def numbers(shape: tuple[int, ...] = (1, 1, 64, 48)) -> Float:
    return np.random.default_rng(3).standard_normal(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@given(bits=st.integers(0, 0xFFFFFFFF))
def test_the_unit_in_the_last_place_is_the_distance_to_the_next_number(dtype: DType, bits: int) -> None:
    width, largest = {"fp16": ("u2", 0x7BFF), "bf16": ("u2", 0x7F7F), "fp32": ("u4", 0x7F7FFFFF)}[dtype]
    magnitude = bits % largest
    pair = np.array([magnitude, magnitude + 1], dtype=width)
    low, high = decode(pair.view({"fp16": "f2", "bf16": "u2", "fp32": "f4"}[dtype]), dtype)
    assert unit_in_last_place(float(low), dtype) == high - low
    assert unit_in_last_place(-float(low), dtype) == high - low


@pytest.mark.parametrize("dtype", DTYPES)
def test_correct_rounding_passes_and_more_than_twice_the_peers_error_fails(dtype: DType) -> None:
    want = expected(numbers(), dtype=dtype)
    value = want.bounded.value
    found = want.compare(stored(value, dtype))
    assert found.passed
    assert found.tensor < 0.5
    unit = unit_in_last_place(float(np.abs(value).max()), dtype)
    peer = float(np.abs(stored(value, dtype) - value).max())
    for times, right in ((0.999, True), (1.001, False)):
        wrong = value.copy()
        wrong[0, 0, 5, 7] += times * (2 * peer + unit)
        loose = replace(want, bounded=Bounded(value=value, error=np.full(value.shape, 1e6)))
        assert loose.compare(wrong).passed == right


def test_the_error_of_the_worst_peer_counts() -> None:
    want = expected(numbers())
    worse = want.bounded.value + 0.25
    both = replace(want, same_precision=[*want.same_precision, worse])
    assert both.compare(worse).allowed > 0.5
    assert want.compare(worse).allowed < 0.1


def test_an_element_beyond_its_own_bound_is_wrong_though_larger_ones_may_err_more() -> None:
    value = numbers()
    value[0, 0, 3, 3] = 1e-4
    want = expected(value)
    wrong = stored(value, "bf16")
    wrong[0, 0, 3, 3] = 2e-4
    found = want.compare(wrong)
    assert found.tensor <= 1 and found.tile <= 1
    assert found.element > 1
    assert not found.passed


def test_a_scale_within_the_elements_bounds_is_caught_over_a_tile() -> None:
    rng, value = np.random.default_rng(4), numbers()
    peer, wrong = (value * (1 + rng.uniform(-0.01, 0.01, value.shape)) for _ in range(2))
    want = Expected(
        bounded=Bounded(value=value, error=0.02 * np.abs(value)), same_precision=[peer], dtype="bf16"
    )
    assert want.compare(wrong).passed
    wrong[..., 16:32, 32:48] *= 1.01
    found = want.compare(wrong)
    assert found.element <= 1 and found.tensor <= 1
    assert np.argwhere(found.tiles > 1).tolist() == [[0, 0, 1, 2]]
    assert not found.passed


def test_tiles_that_the_peers_scale_themselves_or_that_are_zero_cannot_be_distinguishable() -> None:
    value = numbers((1, 1, 32, 16))
    value[..., :16, :] = 0.0
    want = expected(value)
    other = stored(value, "bf16")
    other[..., 16:, :] *= 1.01
    assert (want.compare(other).tiles > 1).tolist() == [[[[False], [True]]]]
    noisy = replace(want, same_precision=[*want.same_precision, value * 1.0045])
    assert not (noisy.compare(other).tiles > 1).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_infinitely_wrong(bad: float) -> None:
    want = expected(numbers())
    wrong = stored(want.bounded.value, "bf16")
    wrong[0, 0, -1, -1] = bad
    found = want.compare(wrong)
    assert math.isinf(found.element) and math.isinf(found.tensor)


def test_infinite_references_and_empty_tensors_are_compared() -> None:
    value = np.array([[np.inf, 1.0]])
    infinite = Expected(
        bounded=Bounded(value=value, error=np.array([[0.0, 0.1]])), same_precision=[value], dtype="fp32"
    )
    assert infinite.compare(value).passed
    assert math.isinf(infinite.compare(np.array([[3e38, 1.0]])).tensor)
    assert math.isinf(infinite.compare(np.array([[-np.inf, 1.0]])).element)
    empty = np.zeros((1, 2, 0, 64))
    none = Expected(bounded=Bounded(value=empty, error=empty), same_precision=[empty], dtype="fp16")
    assert none.compare(empty).passed


@pytest.mark.parametrize("useless", [np.full((1, 1, 4, 4), np.nan), np.zeros((1, 1, 4, 5))])
def test_a_useless_same_precision_result_is_refused(useless: Float) -> None:
    value = numbers((1, 1, 4, 4))
    want = Expected(
        bounded=Bounded(value=value, error=np.abs(value)), same_precision=[value, useless], dtype="fp16"
    )
    with pytest.raises(RulesError, match="same precision"):
        want.compare(value)


@pytest.mark.parametrize("error", [math.inf, -1.0, math.nan])
def test_a_bound_that_allows_everything_allows_nothing(error: float) -> None:
    value = numbers((1, 1, 4, 4))
    errors = np.ones(value.shape)
    errors[0, 0, 1, 2] = error
    want = Expected(bounded=Bounded(value=value, error=errors), same_precision=[value], dtype="fp16")
    with pytest.raises(RulesError, match="bound"):
        want.compare(value)


@pytest.mark.parametrize("times", [0.99, 1.01])
def test_each_condition_has_its_own_limit(times: float) -> None:
    """A little under each limit passes, a little over it fails with one text."""
    value = np.sign(numbers((1, 1, 16, 16))) * 1.5
    sloppy = value * np.where(np.arange(16) % 2, 1.1, 0.9)  # allows large errors and scales no tile
    loose = Expected(bounded=Bounded(value=value, error=np.abs(value)), same_precision=[sloppy], dtype="fp32")
    assert not loose.compare(value * 1.004).violations("out")

    bounded = replace(loose, bounded=Bounded(value=value, error=1e-3 * np.abs(value)))
    one = value.copy()
    one[0, 0, 15, 15] *= 1 + 1e-3 * 1.25 * times
    element = bounded.compare(one).violations("out")
    tile = loose.compare(value * (1 + 0.005 * times)).violations("out")
    exact = replace(loose, same_precision=[value])
    unit = unit_in_last_place(float(np.abs(value).max()), "fp32")
    other = value.copy()
    other[0, 0, 0, 0] += times * unit
    tensor = exact.compare(other).violations("out")
    if times < 1:
        assert (element, tile, tensor) == ((), (), ())
    else:
        assert [len(each) for each in (element, tile, tensor)] == [1, 1, 1]
        assert element[0].startswith("out is wrong in 1 of 256 elements")
        assert tile[0].startswith("the tile of out at (0, 0, 0, 0) is scaled by 0.5")
        assert tensor[0].startswith("out errs by ")


@pytest.mark.parametrize(("peer", "seen"), [(1.0039, True), (0.9961, True), (1.0041, False), (0.9959, False)])
def test_tiles_are_skipped_when_the_same_precision_scales_them_by_four_fifths_of_the_limit(
    peer: float, seen: bool
) -> None:
    value = numbers((1, 1, 16, 16))
    want = Expected(
        bounded=Bounded(value=value, error=np.abs(value)), same_precision=[value * peer], dtype="fp32"
    )
    assert bool((want.compare(value * 1.0055).tiles > 1).any()) == seen


def test_the_unit_in_the_last_place_is_that_of_the_largest_value_however_small() -> None:
    value = np.full((1, 1, 16, 16), 2.0**-10)
    want = Expected(bounded=Bounded(value=value, error=np.abs(value)), same_precision=[value], dtype="fp32")
    assert want.compare(value).allowed == 2.0**-33


def test_a_ratio_of_exactly_one_is_allowed() -> None:
    one = np.array([[1.0, 2.0]])
    at_limits = Comparison(
        actual=one,
        value=one,
        elements=np.array([[1.0, 0.5]]),
        error=0.25,
        allowed=0.25,
        tiles=np.array([[1.0]]),
    )
    assert at_limits.violations("out") == () and at_limits.passed
    over = replace(at_limits, elements=np.array([[1.0, 1.5]]), tiles=np.array([[1.0, 1.5]]))
    element, tile = over.violations("out")
    assert "wrong in 1 of 2 elements" in element and "the first at (0, 1)" in element
    assert tile.startswith("the tile of out at (0, 16) ")
    assert not over.passed
