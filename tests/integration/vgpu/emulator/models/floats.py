"""Models of floating-point operations, from the ISA guides' descriptions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.integration.vgpu.emulator.models.numbers import Array, fused

Model = Callable[..., Any]
U32, F32, F16, F64 = np.uint32, np.float32, np.float16, np.float64


def signalling(x: Array) -> Array:
    if x.dtype == F16:
        return np.asarray(np.isnan(x) & (x.view(np.uint16) & np.uint16(0x200) == 0))
    return np.asarray(np.isnan(x) & (x.view(U32) & U32(0x400000) == 0))


def best(greater: bool) -> Model:
    def model(a: Array, b: Array) -> Array:
        choose = np.fmax if greater else np.fmin
        with np.errstate(invalid="ignore"):
            result = choose(a, b)
        zeros = (a == 0) & (b == 0)
        negative = np.signbit(a) & np.signbit(b) if greater else np.signbit(a) | np.signbit(b)
        result = np.where(zeros, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), result)
        return np.where(signalling(a) | signalling(b), a.dtype.type(np.nan), result).astype(a.dtype)

    return model


def best3(greater: bool) -> Model:
    two = best(greater)

    def model(a: Array, b: Array, c: Array) -> Array:
        first = two(a, b)
        # a number made quiet in the first step is not signalling in the second
        first = np.where(signalling(first), F32(np.nan), first).astype(F32)
        return np.asarray(two(first, c))

    return model


def no_denormal(x: Array) -> Array:
    tiny = (np.abs(x) < F32(2.0**-126)) & ~np.isnan(x)
    return np.where(tiny, np.copysign(F32(0), x), x).astype(F32)


def transcendental(function: Model) -> Model:
    """In float64, rounded to float32, denormals flushed before and after."""

    def model(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return no_denormal(np.asarray(function(no_denormal(x).astype(F64))).astype(F32))

    return model


def quiet(function: Model) -> Model:
    def model(*x: Array) -> Any:
        with np.errstate(all="ignore"):
            return function(*x)

    return model


def saturated(low: int, high: int, dtype: Any) -> Model:
    def model(x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            clean = np.trunc(np.nan_to_num(x.astype(F64), nan=0.0, posinf=1e30, neginf=-1e30))
        return np.clip(clean, low, high).astype(np.int64).astype(dtype)

    return model


def toward_zero(x: Array) -> Array:
    """float32 to float16 without rounding up: one unit less where conversion to nearest went past."""
    with np.errstate(all="ignore"):
        nearest = x.astype(F16)
        past = np.abs(nearest.astype(F64)) > np.abs(x.astype(F64))
    return np.where(past, nearest.view(np.uint16) - 1, nearest.view(np.uint16)).astype(np.uint16).view(F16)


def bf16(x: Array) -> Array:
    """Nearest, ties to even, by comparing distances of the two neighbours."""
    bits = x.view(U32)
    down = bits & U32(0xFFFF0000)
    rest = bits & U32(0xFFFF)
    odd = (bits >> U32(16)) & U32(1)
    up = (rest > 0x8000) | ((rest == 0x8000) & (odd == 1))
    rounded = np.where(up, down.astype(np.uint64) + 0x10000, down).astype(np.uint64) >> np.uint64(16)
    return np.where(np.isnan(x), (bits >> U32(16)) | U32(0x40), rounded).astype(np.uint16)


def packed_pair(low: Array, high: Array) -> Array:
    return (low.view(np.uint16).astype(U32) | high.view(np.uint16).astype(U32) << U32(16)).astype(U32)


def ldexp(x: Array, n: Array) -> Array:
    # twice 2^±n/2 in float64 is exact down to denormal results, which are then rounded once
    n = np.clip(n.astype(np.int64), -400, 400)
    with np.errstate(all="ignore"):
        return np.ldexp(x.astype(F64), n).astype(F32)


def fraction(x: Array) -> Array:
    with np.errstate(all="ignore"):
        r = (x - np.floor(x)).astype(F32)
    return np.where(r >= 1, np.nextafter(F32(1), F32(0)), r).astype(F32)


def exponent(x: Array) -> Array:
    return ((x.view(U32) >> U32(23)) & U32(255)).astype(np.int64)


def denormal(x: Array) -> Array:
    return np.asarray((x != 0) & (exponent(x) == 0))


@quiet
def division_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    up, down = (s0 * F32(2.0**64)).astype(F32), (s0 * F32(2.0**-64)).astype(F32)
    reciprocal, quotient = denormal((F32(1) / s1).astype(F32)), denormal((s2 / s1).astype(F32))
    rules = [
        ((s2 == 0) | (s1 == 0), np.full_like(s0, np.nan), False),
        (exponent(s2) - exponent(s1) >= 96, np.where(s0 == s1, up, s0), True),
        (denormal(s1), up, False),
        (reciprocal & quotient, np.where(s0 == s1, up, s0), True),
        (reciprocal, down, False),
        (quotient, np.where(s0 == s2, up, s0), True),
        (exponent(s2) <= 23, up, False),
    ]
    conditions = [rule[0] for rule in rules]
    result = np.select(conditions, [rule[1] for rule in rules], s0)
    return result.astype(F32), np.select(conditions, [np.full(s0.shape, rule[2]) for rule in rules], False)


@quiet
def division_fixup(s0: Array, s1: Array, s2: Array) -> Array:
    negative = np.signbit(s1) != np.signbit(s2)

    def signed(x: Array) -> Array:
        return np.where(negative, -x, x)

    conditions = [
        np.isnan(s2) | np.isnan(s1),
        (s1 == 0) & (s2 == 0) | np.isinf(s1) & np.isinf(s2),
        (s1 == 0) | np.isinf(s2),
        np.isinf(s1) | (s2 == 0),
        exponent(s2) - exponent(s1) < -150,
    ]
    zero, infinite = np.zeros_like(s0), np.full_like(s0, np.inf)
    values = [zero + np.nan, zero + np.nan, signed(infinite), signed(zero), signed(zero)]
    return np.asarray(np.select(conditions, values, signed(np.abs(s0)))).astype(F32)


@quiet
def division_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    total = fused(a, b, c)
    factor = np.where(exponent(c) > 127, F32(2.0**64), F32(2.0**-64))
    return np.where(scaled, total * factor, total).astype(F32)


def number_class(x: Array, wanted: Array) -> Array:
    e, m, negative = exponent(x), x.view(U32) & U32(0x7FFFFF), np.signbit(x)
    nan = (e == 255) & (m != 0)
    kinds = [
        nan & (m < 0x400000), nan & (m >= 0x400000),
        negative & np.isinf(x), negative & (e > 0) & (e < 255), negative & (e == 0) & (m != 0),
            negative & (x == 0),
        ~negative & (x == 0), ~negative & (e == 0) & (m != 0), ~negative & (e > 0) & (e < 255),
            ~negative & np.isinf(x),
    ]  # fmt: skip
    bits = sum(
        (kind.astype(U32) << U32(place) for place, kind in enumerate(kinds)), np.zeros(x.shape, dtype=U32)
    )
    return np.asarray((bits & wanted) != 0)


def half_math(function: Model) -> Model:
    """Halves computed exactly enough in float64 and rounded once."""

    def model(*x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*[one.astype(F64) for one in x])).astype(F16)

    return model


def mixed_half(a: Array, b: Array, c: Array) -> Array:
    with np.errstate(all="ignore"):
        return fused(a, b, c).astype(F16)


def nearest_half(guess: Any, exact: Fraction) -> Any:
    """The half nearest to a number, ties to even, among a guess and its neighbours."""

    def order(half: Any) -> tuple[Fraction, int]:
        return abs(Fraction(float(half)) - exact), int(half.view(np.uint16)) & 1

    with np.errstate(over="ignore"):
        near = [np.nextafter(guess, F16(-np.inf)), guess, np.nextafter(guess, F16(np.inf))]
    return min((half for half in near if np.isfinite(half)), key=order)


def fused_half(a: Array, b: Array, c: Array) -> Array:
    """By exact rationals to the nearest half: the closer of the float64's two neighbours, ties to even."""
    with np.errstate(all="ignore"):
        special = (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(F16)
    out = special.copy()
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        if all(map(np.isfinite, (x, y, z))) and np.isfinite(special[i]):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            out[i] = nearest_half(special[i], exact)
            if out[i] == 0:
                out[i] = special[i]  # the sign of zero
    return out
