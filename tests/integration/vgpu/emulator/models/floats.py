"""Models of floating-point operations, from the ISA guides' descriptions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.integration.vgpu.emulator.models.numbers import Array, fused, fused_double

Model = Callable[..., Any]
U32, U64, F32, F16, F64 = np.uint32, np.uint64, np.float32, np.float16, np.float64


def signalling(x: Array) -> Array:
    """NaNs without the highest bit of the mantissa."""
    bits, quiet_bit = {F16: (np.uint16, 0x200), F32: (U32, 1 << 22), F64: (U64, 1 << 51)}[x.dtype.type]
    return np.asarray(np.isnan(x) & (x.view(bits) & bits(quiet_bit) == 0))


def best(greater: bool) -> Model:
    """A quiet NaN loses, a signalling one wins; -0 is less than +0."""

    def model(a: Array, b: Array) -> Array:
        choose = np.fmax if greater else np.fmin
        with np.errstate(invalid="ignore"):
            result = choose(a, b)
        zeros = (a == 0) & (b == 0)
        negative = np.signbit(a) & np.signbit(b) if greater else np.signbit(a) | np.signbit(b)
        result = np.where(zeros, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), result)
        return np.where(signalling(a) | signalling(b), a.dtype.type(np.nan), result).astype(a.dtype)

    return model


def best_number(greater: bool) -> Model:
    """Any NaN loses to a number; -0 is less than +0."""
    two = best(greater)

    def model(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, two(a, b))).astype(a.dtype)

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
    one = x.dtype.type(1)
    with np.errstate(all="ignore"):
        r = (x - np.floor(x)).astype(x.dtype)
    return np.where(r >= 1, np.nextafter(one, x.dtype.type(0)), r).astype(x.dtype)


def exponent(x: Array) -> Array:
    """The biased exponent of float32 or float64."""
    if x.dtype == F64:
        return ((x.view(U64) >> U64(52)) & U64(2047)).astype(np.int64)
    return ((x.view(U32) >> U32(23)) & U32(255)).astype(np.int64)


def denormal(x: Array) -> Array:
    return np.asarray((x != 0) & (exponent(x) == 0))


def _division_limits(x: Array) -> tuple[int, int, int, int, int]:
    """Power of the scale, exponents' largest distance, least exponent, distance of a zero, largest addend."""
    return (128, 768, 53, -1075, 1023) if x.dtype == F64 else (64, 96, 23, -150, 127)


@quiet
def division_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    number, (power, apart, least, _, _) = s0.dtype.type, _division_limits(s0)
    up, down = s0 * number(2.0**power), s0 * number(2.0**-power)
    reciprocal, quotient = denormal((number(1) / s1).astype(number)), denormal((s2 / s1).astype(number))
    rules = [
        ((s2 == 0) | (s1 == 0), np.full_like(s0, np.nan), False),
        (exponent(s2) - exponent(s1) >= apart, np.where(s0 == s1, up, s0), True),
        (denormal(s1), up, False),
        (reciprocal & quotient, np.where(s0 == s1, up, s0), True),
        (reciprocal, down, False),
        (quotient, np.where(s0 == s2, up, s0), True),
        (exponent(s2) <= least, up, False),
    ]
    conditions = [rule[0] for rule in rules]
    result = np.select(conditions, [rule[1] for rule in rules], s0)
    return result.astype(number), np.select(conditions, [np.full(s0.shape, rule[2]) for rule in rules], False)


@quiet
def division_fixup(s0: Array, s1: Array, s2: Array) -> Array:
    negative = np.signbit(s1) != np.signbit(s2)
    conditions = [
        np.isnan(s2) | np.isnan(s1) | (s1 == 0) & (s2 == 0) | np.isinf(s1) & np.isinf(s2),
        (s1 == 0) | np.isinf(s2),
        np.isinf(s1) | (s2 == 0) | (exponent(s2) - exponent(s1) < _division_limits(s0)[3]),
    ]
    zero = np.zeros_like(s0)
    size = np.select(conditions, [zero + np.nan, zero + np.inf, zero], np.abs(s0))
    return np.where(negative, -size, size).astype(s0.dtype)


@quiet
def division_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    number, (power, *_, largest) = a.dtype.type, _division_limits(a)
    total = (fused_double if number is F64 else fused)(a, b, c)
    factor = np.where(exponent(c) > largest, number(2.0**power), number(2.0**-power))
    return np.where(scaled, total * factor, total).astype(number)


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
