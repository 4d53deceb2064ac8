"""Number formats of Triton's types in numpy: storage, exact decoding, rounding to nearest even."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

FloatType = Literal["fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16"]
ExactType = Literal["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
"""Integers, and `i1`: a byte that is 0 or 1."""
DType = FloatType | ExactType
Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Float:
    """A float: bits, those of the mantissa, bias. `unsigned_zero`: the pattern of -0 is the only NaN."""

    bits: int
    mantissa: int
    bias: int
    infinities: bool = True
    unsigned_zero: bool = False


_FLOATS: dict[FloatType, _Float] = {
    "fp16": _Float(bits=16, mantissa=10, bias=15),
    "bf16": _Float(bits=16, mantissa=7, bias=127),
    "fp32": _Float(bits=32, mantissa=23, bias=127),
    "fp64": _Float(bits=64, mantissa=52, bias=1023),
    "fp8e5": _Float(bits=8, mantissa=2, bias=15),
    "fp8e4nv": _Float(bits=8, mantissa=3, bias=7, infinities=False),
    "fp8e4b8": _Float(bits=8, mantissa=3, bias=8, infinities=False, unsigned_zero=True),
    "fp8e5b16": _Float(bits=8, mantissa=2, bias=16, infinities=False, unsigned_zero=True),
}
DTYPES: tuple[DType, ...] = (*_FLOATS, *get_args(ExactType))
"""Every type of a tensor's elements."""
EPSILON: dict[DType, float] = {name: 2.0 ** -(form.mantissa + 1) for name, form in _FLOATS.items()}
"""Largest relative error of rounding to nearest (half the distance from 1 to the next number)."""
SMALLEST: dict[DType, float] = {
    name: max(2.0 ** -(form.bias + form.mantissa), 2.0**-1074) for name, form in _FLOATS.items()
}
"""Half the distance between subnormal numbers, of fp64 the distance: the absolute rounding error."""
_NATIVE = {"fp16": "f2", "fp32": "f4", "fp64": "f8", "i1": "u1"}
STORAGE: dict[DType, np.dtype[Any]] = {
    name: np.dtype(_NATIVE.get(name) or f"u{form.bits // 8}") for name, form in _FLOATS.items()
} | {name: np.dtype(_NATIVE.get(name) or f"{name[0]}{int(name[1:]) // 8}") for name in get_args(ExactType)}


def is_exact(dtype: DType) -> TypeGuard[ExactType]:
    """Integers and bool, whose results have no rounding error."""
    return dtype in get_args(ExactType)


def nan_patterns(dtype: DType) -> tuple[int, int] | None:
    """Two quiet NaN of a float as integers; None for a type with fewer."""
    if is_exact(dtype):
        return None
    form = _FLOATS[dtype]  # type: ignore[index]
    if form.unsigned_zero:
        return None
    if not form.infinities:
        return 0x7F, 0xFF
    if form.bits == 8:
        return 0x7D, 0xFD
    low = 0x5AA55AA55AA55AA5 & (1 << form.mantissa - 2) - 1
    exponent = (1 << form.bits - 1 - form.mantissa) - 1 << form.mantissa
    return tuple(exponent | top << form.mantissa - 2 | low for top in (2, 3))  # type: ignore[return-value]


def bf16_bits(values: Array) -> npt.NDArray[np.uint16]:
    """float32 values rounded to nearest even, ties included; NaN stays NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(single), quiet, rounded).astype(np.uint16).reshape(np.shape(values))


def bf16_values(bits: Array) -> npt.NDArray[np.float32]:
    """The numbers with these bfloat16 bits; exact."""
    wide = np.ascontiguousarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def encode(values: Array, dtype: DType) -> Array:
    """Numbers as in memory. Integers wrap; fp8 saturates, and has infinities where its format does."""
    if dtype == "bf16":
        return bf16_bits(_to_odd(values) if np.asarray(values).dtype == np.float64 else values)
    if STORAGE[dtype].itemsize == 1 and not is_exact(dtype):
        return _nearest(np.asarray(values, dtype=np.float64), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(STORAGE[dtype])


def decode(stored: Array, dtype: DType) -> Array:
    """The numbers in memory, exact: float64 of floats, integers of their own type."""
    if is_exact(dtype):
        return np.asarray(stored)
    if dtype == "bf16":
        return bf16_values(stored).astype(np.float64)
    if STORAGE[dtype].itemsize == 1:
        return np.asarray(_values(dtype)[stored])
    return np.asarray(stored).astype(np.float64)


def _to_odd(values: Array) -> npt.NDArray[np.float32]:
    """float64 as float32, the last bit set when something was lost: rounding again is then right."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values).astype(np.float32)
        lossy = (single.astype(np.float64) != values) & ~np.isnan(values)
    bits = single.view(np.uint32)
    beyond = lossy & (np.abs(single.astype(np.float64)) > np.abs(values))
    odd = np.where(lossy, (bits - beyond.astype(np.uint32)) | np.uint32(1), bits)
    return np.asarray(odd, dtype=np.uint32).view(np.float32).reshape(np.shape(values))


@cache
def _values(dtype: DType) -> npt.NDArray[np.float64]:
    """The number of every bit pattern of a float of 8 bits."""
    form = _FLOATS[dtype]  # type: ignore[index]
    pattern = np.arange(2**form.bits, dtype=np.int64)
    top = 2 ** (form.bits - 1 - form.mantissa) - 1
    fraction, exponent = pattern & (2**form.mantissa - 1), pattern >> form.mantissa & top
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


def _nearest(values: npt.NDArray[np.float64], dtype: DType) -> Array:
    """The nearest number, ties to the even pattern; the largest one for larger ones but infinities."""
    form, table = _FLOATS[dtype], _values(dtype)  # type: ignore[index]
    half = 2 ** (form.bits - 1)
    finite = np.flatnonzero(np.isfinite(table[:half]))
    numbers = table[finite]
    size = np.abs(values)
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    with np.errstate(invalid="ignore"):
        nearer_high = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
        found = finite[np.where(nearer_high, above, above - 1)]
        if form.infinities:
            found = np.where(np.isinf(size), finite[-1] + 1, found)
    negative = np.signbit(values) & ~((found == 0) & form.unsigned_zero)
    nan = half if form.unsigned_zero else half - 1
    return np.asarray(np.where(np.isnan(values), nan, found + half * negative).astype(STORAGE[dtype]))
