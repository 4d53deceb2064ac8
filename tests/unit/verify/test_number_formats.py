"""Number formats of element types, against the formats' definitions, numpy and the library's header."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from aotforge.plan.checks import ELEMENT_TYPES
from aotforge.rules import DTYPE_NUMBERS, dtypes
from aotforge.verify.interpreter.number_formats import (
    DTYPES,
    EPSILON,
    SMALLEST,
    STORAGE,
    DType,
    decode,
    encode,
    is_exact,
    nan_patterns,
)

FP8: tuple[DType, ...] = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
FLOATS: tuple[DType, ...] = ("fp16", "bf16", "fp32", "fp64", *FP8)
HEADER = Path(__file__).parents[3] / "runtime" / "include" / "aotriton" / "dtypes.h"


@pytest.mark.parametrize(
    ("dtype", "largest", "smallest", "one"),
    [
        # OCP 8-bit floating point specification, and the variants without negative zero of LLVM
        ("fp8e4nv", 448.0, 2.0**-9, 0x38),
        ("fp8e5", 57344.0, 2.0**-16, 0x3C),
        ("fp8e4b8", 240.0, 2.0**-10, 0x40),
        ("fp8e5b16", 57344.0, 2.0**-17, 0x40),
    ],
)
def test_limits_of_fp8(dtype: DType, largest: float, smallest: float, one: int) -> None:
    numbers = decode(np.arange(256, dtype=np.uint8), dtype)
    finite = numbers[np.isfinite(numbers)]
    assert (finite.max(), finite[finite > 0].min()) == (largest, smallest)
    assert encode(np.array([1.0]), dtype)[0] == one
    assert SMALLEST[dtype] == smallest / 2


@pytest.mark.parametrize("dtype", FP8)
def test_every_number_of_fp8_is_itself_and_ties_are_even(dtype: DType) -> None:
    patterns = np.arange(128, dtype=np.uint8)
    numbers = decode(patterns, dtype)
    known = np.isfinite(numbers)
    assert np.array_equal(encode(numbers[known], dtype), patterns[known])
    pairs = zip(patterns[known][:-1], numbers[known][:-1], numbers[known][1:], strict=True)
    for pattern, low, high in pairs:
        assert encode(np.array([(low + high) / 2]), dtype)[0] == pattern + (pattern & 1)
    assert np.isnan(decode(encode(np.array([np.nan]), dtype), dtype))[0]


@pytest.mark.parametrize("dtype", FP8)
def test_fp8_saturates_and_keeps_infinities_that_it_has(dtype: DType) -> None:
    numbers = decode(np.arange(256, dtype=np.uint8), dtype)
    largest = numbers[np.isfinite(numbers)].max()
    found = decode(encode(np.array([largest * 1.2, -1e30, np.inf, -np.inf]), dtype), dtype)
    infinity = np.inf if dtype == "fp8e5" else largest
    assert found.tolist() == [largest, -largest, infinity, -infinity]


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_within_epsilon(dtype: DType) -> None:
    values = np.random.default_rng(0).standard_normal(4000)
    error = np.abs(decode(encode(values, dtype), dtype) - values)
    bound = np.maximum(EPSILON[dtype] * np.abs(values), SMALLEST[dtype])
    assert (error <= bound).all()
    if dtype != "fp64":
        assert (error > 0.8 * EPSILON[dtype] * np.abs(values)).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_canaries_are_two_nan_where_the_type_has_them(dtype: DType) -> None:
    patterns = nan_patterns(dtype)
    if is_exact(dtype) or dtype in {"fp8e4b8", "fp8e5b16"}:
        assert patterns is None
        return
    assert patterns and patterns[0] != patterns[1]
    width = STORAGE[dtype].itemsize
    stored = np.array(patterns, dtype=f"u{width}").view(STORAGE[dtype])
    assert np.isnan(decode(stored, dtype)).all()


def test_integers_are_kept_as_they_are() -> None:
    for dtype, value in (("i64", -(2**63)), ("u64", 2**64 - 1), ("i8", -128), ("u8", 255), ("i1", 1)):
        assert int(decode(encode(np.array([value]), dtype), dtype)[0]) == value  # type: ignore[arg-type]


def test_numbers_of_types_are_those_of_the_header() -> None:
    names = {"Float": "fp", "BFloat": "bf", "Int": "i", "UInt": "u"}
    found = dict(re.findall(r"k([A-Z][A-Za-z]+?\d+) = (\d+)", HEADER.read_text()))
    wanted = {
        names[name.rstrip("0123456789")] + name[len(name.rstrip("0123456789")) :]: int(number)
        for name, number in found.items()
    }
    assert len(wanted) == 11
    assert wanted == {name: number for name, number in DTYPE_NUMBERS.items() if number < 100}
    assert set(DTYPE_NUMBERS) == set(DTYPES) <= ELEMENT_TYPES
    assert len(set(DTYPE_NUMBERS.values())) == len(DTYPE_NUMBERS)
    assert dtypes("i8", "fp8e5") == {"i8": 10, "fp8e5": 111}
    with pytest.raises(ValueError, match="'fp9' is not an element type"):
        dtypes("fp9")
