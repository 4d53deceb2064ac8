"""Numbers for models: edge cases per type, and exactly rounded operations that numpy does not have."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES: dict[str, Any] = {
    "u32": np.uint32, "b32": np.uint32, "i32": np.int32, "f32": np.float32, "u16": np.uint16, "i16": np.int16,
        "f16": np.float16,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64, "mask": np.bool_, "mix": np.float32,
}  # fmt: skip
_BITS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

_EDGES_32 = [
    0, 1, 2, 3, 7, 8, 15, 16, 23, 24, 31, 32, 33, 63, 64, 127, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
        0x7FFFFF, 0x800000,
    0xFFFFFF, 0x1000000, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0xAAAAAAAA,
        0x55555555,
    0x0C0D0807, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
        0xFFA00000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x00800000, 0x80800000, 0x007FFFFF, 0x00000001, 0x80000001, 0x4F000000, 0xCF000000,
        0x4F800000, 0x4EFFFFFF,
    0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x33800000, 0x33000000, 0x33000001, 0x387FC000,
        0x387FE000, 0x38800000,
    0x3F000000, 0x3FC00000, 0x40200000, 0xBFC00000, 0x7E800000, 0x7F000000, 0x0B800000, 0x3C003C00,
        0x7C00FC00, 0x7E017D00,
]  # fmt: skip
_EDGES_16 = [
    0, 1, 2, 15, 16, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7BFF,
        0xFBFF, 0x0400,
    0x03FF, 0x8400, 0x0001, 0x3555, 0x3800, 0x6400, 0x5555,
]  # fmt: skip
_EDGES_64 = [
    0, 1, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
        0x3FF0000000000000,
    0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FEFFFFFFFFFFFFF,
        0x0010000000000000, 0x000FFFFFFFFFFFFF,
]  # fmt: skip


def draw(rng: np.random.Generator, kind: str, count: int, *, calm: bool = False) -> Array:
    """Values of a type: edges, random bits, and numbers of ordinary size. `calm`: the last only, for
    floats."""
    if kind == "mask":
        return rng.integers(0, 2, count).astype(np.bool_)
    dtype = np.dtype(DTYPES[kind])
    bits = _BITS[dtype.itemsize]
    edges = np.array({2: _EDGES_16, 4: _EDGES_32, 8: _EDGES_64}[dtype.itemsize], dtype=bits)
    wild = rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True)
    if dtype.kind == "f":
        ordinary = (rng.standard_normal(count) * 2.0 ** rng.integers(-6, 7, count)).astype(dtype).view(bits)
    else:
        ordinary = rng.integers(0, 100, count).astype(bits)
    chosen = rng.integers(0, 3, count)
    drawn = np.where(chosen == 0, rng.choice(edges, count), np.where(chosen == 1, wild, ordinary)).astype(
        bits
    )
    return np.asarray((ordinary if calm else drawn).view(dtype))


def fused(a: Array, b: Array, c: Array) -> Array:
    """a b + c in float32, rounded once: a float64 sum rounded to odd (Boldo and Melquiond), then to
    float32."""
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)  # exact
        addend = c.astype(np.float64)
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)
        bits = total.view(np.int64)
        grows = (error > 0) == (total > 0)
        odd = np.where((bits & 1) == 0, np.where(grows, bits + 1, bits - 1), bits)
        inexact = np.isfinite(total) & (error != 0)
        return np.where(inexact, odd, bits).view(np.float64).astype(np.float32)


def fused_double(a: Array, b: Array, c: Array) -> Array:
    """a b + c in float64, rounded once, by exact rational arithmetic."""
    out = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        if not all(map(np.isfinite, (x, y, z))):
            with np.errstate(all="ignore"):
                out.append(float(np.float64(x) * np.float64(y) + np.float64(z)))
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:  # signs of zeros follow the sum of the rounded product
            out.append(x * y + z if Fraction(x) * Fraction(y) == 0 else 0.0)
            continue
        try:
            out.append(float(exact))
        except OverflowError:
            out.append(float("inf") if exact > 0 else float("-inf"))
    return np.array(out, dtype=np.float64)


def same_bits(found: Array, expected: Array) -> Array:
    """Element by element: equal bits, or both not a number."""
    bits = _BITS[found.dtype.itemsize] if found.dtype != np.bool_ else np.bool_
    equal = found.view(bits) == expected.view(bits)
    if found.dtype.kind == "f":
        equal |= np.isnan(found) & np.isnan(expected)
    return np.asarray(equal)
