"""Models of vector instructions on doubles: numpy where it rounds the same way, else exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.integration.vgpu.emulator.models.floats import (
    Model,
    best,
    division_fixup,
    division_fmas,
    division_scale,
    exponent,
    fraction,
    quiet,
    saturated,
)
from tests.integration.vgpu.emulator.models.numbers import Array, fused_double

U32, I32, U64, F32, F64 = np.uint32, np.int32, np.uint64, np.float32, np.float64


def propagating(model: Model) -> Model:
    """A NaN wins."""
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, model(a, b)).astype(a.dtype)


def _frexp(x: Array) -> tuple[Array, Array]:
    """By exact comparison with powers of two."""
    mantissas, exponents = x.copy(), np.zeros(x.shape, dtype=I32)
    for i, one in enumerate(x.tolist()):
        if one == 0 or not np.isfinite(one):
            continue
        exact, e = Fraction(one), 0
        numerator, denominator = abs(exact).as_integer_ratio()
        e = numerator.bit_length() - denominator.bit_length()
        while abs(exact) >= Fraction(2) ** e:
            e += 1
        while abs(exact) < Fraction(2) ** (e - 1):
            e -= 1
        mantissas[i], exponents[i] = float(exact / Fraction(2) ** e), e
    return mantissas, exponents


def _ldexp(x: Array, n: Array) -> Array:
    out = x.copy()
    for i, (one, power) in enumerate(zip(x.tolist(), n.tolist(), strict=True)):
        if one == 0 or not np.isfinite(one):
            continue
        if power < -2200:
            out[i] = np.copysign(0.0, one)
            continue
        try:
            exact = float(Fraction(one) * Fraction(2) ** min(power, 2200))
            out[i] = np.copysign(exact, one)
        except OverflowError:
            out[i] = np.copysign(np.inf, one)
    return out


def number_class(bits: int, mantissa: int) -> Model:
    """Of a format of `bits` with `mantissa` of mantissa: bit patterns and masks to whether the class is among
    the wanted."""

    def one(x: int, wanted: int) -> bool:
        negative, m = x >> (bits - 1), x & (1 << mantissa) - 1
        top = (1 << (bits - 1 - mantissa)) - 1
        e = x >> mantissa & top
        if e == top and m:
            return bool(wanted >> (1 if m >> (mantissa - 1) else 0) & 1)
        kind = "infinite" if e == top else "normal" if e else "denormal" if m else "zero"
        order = ["infinite", "normal", "denormal", "zero"]
        place = 2 + order.index(kind) if negative else 9 - order.index(kind)
        return bool(wanted >> place & 1)

    def model(x: Array, wanted: Array) -> Array:
        patterns = x.view(f"u{bits // 8}")
        return np.array([one(p, w) for p, w in zip(patterns.tolist(), wanted.tolist(), strict=True)])

    return model


def _two_over_pi() -> int:
    """2 / pi in units of 2^-1400, by Machin's formula."""
    one = 1 << 1500

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term, k = term // (n * n), k + 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 << 2900) // pi


_TWO_OVER_PI = _two_over_pi()


def angle_part(x: Array, part: Array) -> Array:
    """Bits 53 * part and following of 2 / pi, further ones for angles of 2^55 and more; digits end after bit
    1200."""
    out = []
    for e, n in zip(exponent(x).tolist(), part.tolist(), strict=True):
        first = 53 * (n & 31) + max(0, e - 1077)
        digits = _TWO_OVER_PI >> (1400 - 1201)  # 1201 of them
        kept = (digits << first) & (1 << 1201) - 1
        out.append(np.ldexp(float(kept >> (1201 - 53)), -53 - first + (128 if e >= 1968 else 0)))
    return np.array(out)


MODELS: dict[str, Model] = {
    "v_add_f64": quiet(np.add),
    "v_mul_f64": quiet(np.multiply),
    "v_fma_f64": fused_double,
    "v_fmac_f64": fused_double,
    "v_max_f64": best(True),
    "v_min_f64": best(False),
    "v_maximum_f64": propagating(best(True)),
    "v_minimum_f64": propagating(best(False)),
    "v_trunc_f64": np.trunc,
    "v_floor_f64": np.floor,
    "v_ceil_f64": np.ceil,
    "v_rndne_f64": np.rint,
    "v_fract_f64": fraction,
    "v_ldexp_f64": _ldexp,
    "v_frexp_mant_f64": lambda x: _frexp(x)[0],
    "v_frexp_exp_i32_f64": lambda x: _frexp(x)[1],
    "v_frexp_mant_f32": lambda x: np.where(np.isnan(x), x, _frexp(x.astype(F64))[0].astype(F32)),
    "v_frexp_exp_i32_f32": lambda x: _frexp(x.astype(F64))[1],
    "v_trig_preop_f64": angle_part,
    "v_rcp_f64": quiet(np.reciprocal),
    "v_rsq_f64": quiet(lambda x: 1 / np.sqrt(x)),
    "v_sqrt_f64": quiet(np.sqrt),
    "v_div_scale_f64": division_scale,
    "v_div_fixup_f64": division_fixup,
    "v_div_fmas_f64": division_fmas,
    **{f"v_cmp{x}_class_f64": number_class(64, 52) for x in ("", "x")},
    **{f"v_cmp{x}_class_f32": number_class(32, 23) for x in ("", "x")},
    **{f"v_cmp{x}_class_f16": number_class(16, 10) for x in ("", "x")},
    "v_cvt_f64_f32": quiet(lambda x: x.astype(F64)),
    "v_cvt_f32_f64": quiet(lambda x: x.astype(F32)),
    "v_cvt_f64_i32": lambda x: x.astype(F64),
    "v_cvt_f64_u32": lambda x: x.astype(F64),
    "v_cvt_i32_f64": saturated(-(2**31), 2**31 - 1, I32),
    "v_cvt_u32_f64": saturated(0, 2**32 - 1, U32),
}
