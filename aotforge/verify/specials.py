"""Special numbers of a type: infinities, NaN, zeros, subnormal, largest, all codes of 8 bits.

An image is executed once on a call with them. Its reference decides what is right: NaN where float64 has NaN,
infinities exactly. Elements that the same computation in the same precision does not agree on are left out.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from aotforge.verify.compare import SLACK, Bounded, Expected
from aotforge.verify.interpreter.number_formats import STORAGE, Array, DType, decode, encode, is_exact
from aotforge.verify.tensors import Float

Specials = Literal["all", "finite", "small", "none"]
"""Which special numbers a tensor may have: `finite` without infinities and NaN, `small` also without large
numbers."""
ENOUGH = 512
"""Elements of a tensor that has all of them twice, whatever its type."""
_OF_8_BITS = (448.0, 464.0, 472.0, 480.0, 240.0, 57344.0, 61440.0, 2.0**-9, 2.0**-10, 2.0**-17)
"""Around the limits of 8-bit floats, which conversions round at."""


def special_numbers(dtype: DType, which: Specials = "all") -> Array:
    """The special numbers of a type, of 8 bits all numbers."""
    storage = STORAGE[dtype]
    if dtype == "i1":
        return np.array([0, 1], dtype=storage)
    if storage.itemsize == 1:
        numbers = decode(np.arange(256, dtype=np.uint8).view(storage), dtype)
    elif is_exact(dtype):
        limits = np.iinfo(storage)
        return np.array([0, 1, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype=storage)
    else:
        numbers = _of_float(dtype)
    if is_exact(dtype) or which == "all":
        return numbers
    limit = 2.0 if which == "small" else np.inf
    return numbers[np.isfinite(numbers) & (np.abs(numbers) <= limit)]


def _of_float(dtype: DType) -> Float:
    """Codes around zero, the smallest normal number and infinity, with both signs."""
    bits = STORAGE[dtype].itemsize * 8
    unsigned = np.dtype(f"u{bits // 8}")
    infinity = int(np.ravel(encode(np.array([np.inf]), dtype)).view(unsigned)[0])
    normal = infinity & -infinity  # the lowest bit of the exponent
    codes = np.array(
        [0, 1, normal - 1, normal, infinity - 1, infinity, infinity | normal >> 1], dtype=unsigned
    )
    numbers = np.asarray(decode(codes.view(STORAGE[dtype]), dtype), dtype=np.float64)
    numbers = np.concatenate([numbers, [1.0], decode(encode(np.array(_OF_8_BITS), dtype), dtype)])
    return np.concatenate([numbers, -numbers])


def with_specials(rng: np.random.Generator, drawn: Array, dtype: DType, which: Specials = "all") -> Array:
    """Drawn numbers with special ones among them: of an axis every other one (of 8 bits all), of rows one in
    each, and every other one in the last third."""
    numbers = special_numbers(dtype, which)
    if which == "none" or not drawn.size or not len(numbers):
        return drawn
    result = drawn.copy().reshape(-1, drawn.shape[-1] if drawn.ndim else 1)
    if result.dtype.kind == "f":
        result = result.astype(np.float64)
    rows, columns = result.shape
    order = rng.permutation(np.resize(np.arange(len(numbers)), max(rows, len(numbers))))[:rows]
    result[np.arange(rows), rng.integers(0, columns, size=rows)] = numbers[order]
    dense = result[-max(rows // 3, 1) :] if rows != 2 else result[:0]
    every = numbers[rng.permutation(np.resize(np.arange(len(numbers)), dense.size))].reshape(dense.shape)
    kept = rng.random(dense.shape) < (0.0 if STORAGE[dtype].itemsize == 1 else 0.5)
    dense[...] = np.where(kept, dense, every)
    return result.reshape(drawn.shape)


def special_rows(drawn: Float, dtype: DType, large: float = 0.0) -> Float:
    """Drawn rows (of the last axis but one) of four kinds in turn: as they are, zeros of both signs,
    subnormal numbers, and numbers up to about `large` (0: as they are)."""
    row, column = np.indices(drawn.shape[-2:])
    smallest = float(np.abs(special_numbers(dtype, "small")[1]))
    kinds = [
        drawn,
        np.where(column % 2, -0.0, 0.0) * np.ones_like(drawn),
        np.rint(drawn * 8) * smallest,
        np.clip(drawn, -4, 4) * (large / 4) if large else drawn,
    ]
    return np.asarray(np.choose(row % 4, kinds), dtype=np.float64)


def settled(
    value: Float, error: Float, same_precision: Sequence[Float], dtype: DType
) -> tuple[Float, Float, npt.NDArray[np.bool_]]:
    """Values with infinities where the type has no such number, their bounds, and which elements are defined:
    those for which rounding leaves no choice, and which the same computation in the same precision has.

    Infinities in 8 bits are not: they differ between archs (hazard `infinity-to-fp8`).
    """
    with np.errstate(all="ignore"):
        slack = SLACK * np.where(np.isfinite(error), error, 0.0)
        rounded, *around = (
            np.asarray(decode(encode(x, dtype), dtype), dtype=np.float64)
            for x in (value, value - slack, value + slack)
        )
    kind = _kind(rounded)
    others = [_kind(one) for one in (*around, *same_precision)]
    defined = np.logical_and.reduce([kind == one for one in others])
    if STORAGE[dtype].itemsize == 1:
        defined &= ~np.isinf(value)
    # beyond the largest number the result is that, or infinity
    rounds = (kind == 0) & (np.abs(value) <= _largest(dtype)) & np.isfinite(error)
    value, error = np.where(rounds, value, rounded), np.where(rounds, error, 0.0)
    # an intermediate result of the same precision was infinite or lost
    misses = [Bounded(value=value, error=error).misses(one) for one in same_precision]
    return value, error, defined & np.logical_and.reduce([one <= 1 for one in misses])


def expectation(
    value: Float, error: Float, same_precision: Sequence[Float], dtype: DType, *, special: bool = False
) -> Expected:
    """The expectation of an output, with `special` numbers of what they leave defined."""
    defined = None
    if special:
        value, error, defined = settled(value, error, same_precision, dtype)
    bounded = Bounded(value=value, error=error)
    return Expected(bounded=bounded, same_precision=same_precision, dtype=dtype, defined=defined)


def _kind(values: Float) -> npt.NDArray[np.int8]:
    """0 of finite numbers, 1 and -1 of infinities, 2 of NaN."""
    infinite = np.where(np.isinf(values), np.sign(values), 0)
    return np.where(np.isnan(values), 2, infinite).astype(np.int8)


def _largest(dtype: DType) -> float:
    numbers = special_numbers(dtype)
    return float(numbers[np.isfinite(numbers)].max())
