"""Number formats of Triton's types in numpy: storage, exact decoding, and rounding to nearest even."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Small:
    """A float of 8 or 16 bits without a numpy type. `unsigned_zero`: the pattern of -0 is the only NaN, there are no infinities."""

    bits: int
    mantissa: int
    bias: int
    infinities: bool = False
    unsigned_zero: bool = False


_SMALL = {
    "bf16": _Small(bits=16, mantissa=7, bias=127, infinities=True),
    "fp8e5": _Small(bits=8, mantissa=2, bias=15, infinities=True),
    "fp8e4nv": _Small(bits=8, mantissa=3, bias=7),
    "fp8e4b8": _Small(bits=8, mantissa=3, bias=8, unsigned_zero=True),
    "fp8e5b16": _Small(bits=8, mantissa=2, bias=16, unsigned_zero=True),
}
_STORAGE = {
    "i1": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
    "fp16": "f2", "fp32": "f4", "fp64": "f8", "bf16": "u2", **{name: "u1" for name in _SMALL if name != "bf16"},
}  # fmt: skip
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
FP8 = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
LANGUAGE = {
    "i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e5": "float8e5",
    "fp8e4nv": "float8e4nv", "fp8e4b8": "float8e4b8", "fp8e5b16": "float8e5b16",
}  # fmt: skip
"""Names in `triton.language` by their names in signatures."""
EPSILON = {
    "fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53, "fp8e5": 2.0**-3, "fp8e4nv": 2.0**-4,
    "fp8e4b8": 2.0**-4, "fp8e5b16": 2.0**-3,
}  # fmt: skip
"""Largest relative error of one rounding."""


def storage(kind: str) -> np.dtype[Any]:
    """The numpy type that holds a type's bits."""
    return np.dtype(_STORAGE[kind])


@cache
def _values(kind: str) -> npt.NDArray[np.float64]:
    """The number of every bit pattern."""
    form = _SMALL[kind]
    pattern = np.arange(2**form.bits, dtype=np.int64)
    fraction, exponent = pattern & (2**form.mantissa - 1), pattern >> form.mantissa
    top = 2 ** (form.bits - 1 - form.mantissa) - 1
    exponent &= top
    normal = np.ldexp(1.0 + fraction / 2**form.mantissa, exponent - form.bias)
    value = np.where(exponent == 0, np.ldexp(fraction / 2**form.mantissa, 1 - form.bias), normal)
    value = np.where(pattern >> (form.bits - 1), -value, value)
    if form.infinities:
        value = np.where(exponent == top, np.where(fraction == 0, np.copysign(np.inf, value), np.nan), value)
    elif form.unsigned_zero:
        value[2 ** (form.bits - 1)] = np.nan
    else:
        value = np.where((exponent == top) & (fraction == 2**form.mantissa - 1), np.nan, value)
    return np.asarray(value, dtype=np.float64)


def decode(stored: Array, kind: str) -> Array:
    """The numbers with these bits: float64 of floats, integers as they are; exact."""
    if kind in _SMALL:
        return np.asarray(_values(kind)[stored])
    return stored.astype(np.float64) if kind.startswith("fp") else stored


def encode(values: Array, kind: str) -> Array:
    """Numbers to the nearest of a type, ties to even; integers wrap."""
    if kind in _SMALL:
        return _nearest(np.asarray(values, dtype=np.float64), kind)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(storage(kind))


def rounded(values: Array, kind: str) -> Array:
    """The numbers after one rounding to a type."""
    return decode(encode(values, kind), kind)


def _nearest(values: npt.NDArray[np.float64], kind: str) -> Array:
    """By distance to the two neighbours; beyond the largest finite number: infinity where the format has one, else that number."""
    form, table = _SMALL[kind], _values(kind)
    half = 2 ** (form.bits - 1)
    finite = np.flatnonzero(np.isfinite(table[:half]))
    numbers = table[finite]
    size = np.abs(values)
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    nearer_high = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    found = finite[np.where(nearer_high, above, above - 1)]
    if form.infinities:  # half a unit beyond the largest number and more
        found = np.where(size >= 1.5 * numbers[-1] - 0.5 * numbers[-2], finite[-1] + 1, found)
    negative = np.signbit(values) & ~((found == 0) & form.unsigned_zero)
    nan = half if form.unsigned_zero else half - 1
    return np.asarray(np.where(np.isnan(values), nan, found + half * negative).astype(storage(kind)))
