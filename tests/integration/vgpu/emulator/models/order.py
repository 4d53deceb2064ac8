"""Models of minimum, maximum and median of three, and of 16-bit arithmetic beside the basic operations."""

from __future__ import annotations

import numpy as np

from tests.integration.vgpu.emulator.models.doubles import propagating
from tests.integration.vgpu.emulator.models.floats import (
    Model,
    best,
    best3,
    best_number,
    no_denormal,
    quiet,
    saturated,
    signalling,
)
from tests.integration.vgpu.emulator.models.numbers import Array

U32, I32, F32, F16, F64 = np.uint32, np.int32, np.float32, np.float16, np.float64


def of_three(x: Array, y: Array, z: Array) -> Array:
    return np.sort(np.stack([x, y, z]), axis=0)


def median(x: Array, y: Array, z: Array, *, numbers: bool = False) -> Array:
    """With a NaN the smallest, with `numbers` the smallest number; -0 is less than +0."""
    least = chained_numbers(False, False) if numbers else best3(False)
    nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    bits = np.int32 if x.dtype == F32 else np.int16
    keys = np.stack([one.view(bits) for one in (x, y, z)]).astype(np.int64)
    order = np.where(keys < 0, -(keys & np.iinfo(bits).max) - 1, keys)
    place = np.argsort(order, axis=0, kind="stable")[1]
    middle = np.take_along_axis(np.stack([x, y, z]), place[None], axis=0)[0]
    return np.asarray(np.where(nan, least(x, y, z), middle).astype(x.dtype))


def chained(first: bool, second: bool) -> Model:
    def model(x: Array, y: Array, z: Array) -> Array:
        inner = best(first)(x, y)
        inner = np.where(signalling(inner), inner.dtype.type(np.nan), inner).astype(x.dtype)
        return np.asarray(best(second)(inner, z))

    return model


def chained_numbers(first: bool, second: bool) -> Model:
    return lambda x, y, z: np.asarray(best_number(second)(best_number(first)(x, y), z))


def propagating_chain(first: bool, second: bool) -> Model:
    return lambda x, y, z: propagating(best(second))(propagating(best(first))(x, y), z)


def all_three(greater: bool) -> Model:
    return lambda x, y, z: propagating(best(greater))(propagating(best(greater))(x, y), z)


@quiet
def flushed_sum(a: Array, b: Array, c: Array) -> Array:
    product = no_denormal((no_denormal(a) * no_denormal(b)).astype(F32))
    return no_denormal((product + no_denormal(c)).astype(F32))


def mad64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """The 65-bit sum of signed numbers: its low bits, and its sign."""
    exact = [
        x * y + (z - 2**64 if z >= 2**63 else z)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    return np.array([x % 2**64 for x in exact], dtype=np.uint64), np.array([x < 0 for x in exact])


def _low24(x: Array, signed: bool) -> list[int]:
    return [(n & 0xFFFFFF) - (1 << 24 if signed and n >> 23 & 1 else 0) for n in x.tolist()]


def high_product(signed: bool) -> Model:
    def model(a: Array, b: Array) -> Array:
        pairs = zip(_low24(a, signed), _low24(b, signed), strict=True)
        return np.array([x * y >> 32 & 0xFFFFFFFF for x, y in pairs], dtype=U32)

    return model


def _half(function: Model) -> Model:
    return quiet(lambda *x: np.asarray(function(*[one.astype(F64) for one in x])).astype(F16))


def _ldexp_half(x: Array, n: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.ldexp(x.astype(F64), np.clip(n.astype(np.int64), -200, 200)).astype(F16)


@quiet
def _fraction_half(x: Array) -> Array:
    exact = x.astype(F64) - np.floor(x.astype(F64))
    return np.where(exact > 0.99951171875, 0.99951171875, exact).astype(F16)


@quiet
def _nearest_up(x: Array) -> Array:
    return np.asarray(saturated(-(2**31), 2**31 - 1, I32)(np.floor((x + F32(0.5)).astype(F32))))


def _pair_of_words(low: int, high: int, dtype: type) -> Model:
    def model(a: Array, b: Array) -> Array:
        words = [saturated(low, high, np.int64)(one.astype(F64)).astype(dtype) for one in (a, b)]
        return np.asarray(
            words[0].view(np.uint16).astype(U32) | words[1].view(np.uint16).astype(U32) << U32(16)
        )

    return model


def _fixed_half(s0: Array, s1: Array, s2: Array) -> Array:
    """In float32, where no exponent is extreme."""
    with np.errstate(all="ignore"):
        special = np.where(np.isfinite(s1) & np.isfinite(s2) & (s1 != 0) & (s2 != 0), F16(1), s2 / s1)
    ordinary = np.abs(s0) * np.where(np.signbit(s1) != np.signbit(s2), F16(-1), F16(1))
    return np.where(special == 1, ordinary, special).astype(F16)


MODELS: dict[str, Model] = {
    "v_mad_i64_i32": mad64,
    "v_mad_co_i64_i32": mad64,
    "v_mul_hi_u32_u24": high_product(False),
    "v_mul_hi_i32_i24": high_product(True),
    "v_mad_i32_i16": lambda a, b, c: (a.astype(np.int64) * b + c).astype(np.int64).astype(U32),
    **{f"v_min3_{t}": lambda x, y, z: of_three(x, y, z)[0] for t in ("i32", "u32", "i16", "u16")},
    **{f"v_med3_{t}": lambda x, y, z: of_three(x, y, z)[1] for t in ("i32", "u32", "i16", "u16")},
    **{f"v_max3_{t}": lambda x, y, z: of_three(x, y, z)[2] for t in ("i32", "u32", "i16", "u16")},
    **{f"v_maxmin_{t}": lambda x, y, z: np.minimum(np.maximum(x, y), z) for t in ("i32", "u32")},
    **{f"v_minmax_{t}": lambda x, y, z: np.maximum(np.minimum(x, y), z) for t in ("i32", "u32")},
    **dict.fromkeys(("v_med3_f32", "v_med3_f16"), median),
    **dict.fromkeys(("v_med3_num_f32", "v_med3_num_f16"), lambda x, y, z: median(x, y, z, numbers=True)),
    **{f"v_maxmin_{t}": chained(True, False) for t in ("f32", "f16")},
    **{f"v_minmax_{t}": chained(False, True) for t in ("f32", "f16")},
    **{f"v_maximumminimum_{t}": propagating_chain(True, False) for t in ("f32", "f16")},
    **{f"v_minimummaximum_{t}": propagating_chain(False, True) for t in ("f32", "f16")},
    **{f"v_maxmin_num_{t}": chained_numbers(True, False) for t in ("f32", "f16")},
    **{f"v_minmax_num_{t}": chained_numbers(False, True) for t in ("f32", "f16")},
    **{f"v_max3_num_{t}": chained_numbers(True, True) for t in ("f32", "f16")},
    **{f"v_min3_num_{t}": chained_numbers(False, False) for t in ("f32", "f16")},
    **{f"v_max_num_{t}": best_number(True) for t in ("f32", "f16", "f64")},
    **{f"v_min_num_{t}": best_number(False) for t in ("f32", "f16", "f64")},
    **{f"v_maximum_{t}": propagating(best(True)) for t in ("f32", "f16")},
    **{f"v_minimum_{t}": propagating(best(False)) for t in ("f32", "f16")},
    **{f"v_maximum3_{t}": all_three(True) for t in ("f32", "f16")},
    **{f"v_minimum3_{t}": all_three(False) for t in ("f32", "f16")},
    "v_max3_f16": chained(True, True),
    "v_min3_f16": chained(False, False),
    **dict.fromkeys(("v_mad_f32", "v_madmk_f32", "v_madak_f32", "v_mac_f32"), flushed_sum),
    "v_subrev_u16": lambda a, b: (b.astype(I32) - a).astype(np.uint16),
    **dict.fromkeys(("v_add_i16", "v_add_nc_i16"), lambda a, b: (a.astype(I32) + b).astype(np.uint16)),
    **dict.fromkeys(("v_sub_i16", "v_sub_nc_i16"), lambda a, b: (a.astype(I32) - b).astype(np.uint16)),
    **dict.fromkeys(
        ("v_mad_u16", "v_mad_i16", "v_mad_legacy_u16", "v_mad_legacy_i16"),
        lambda a, b, c: (a.astype(np.int64) * b + c).astype(np.uint16),
    ),
    "v_not_b16": np.bitwise_not,
    "v_bitop3_b16": lambda a, b, c: b ^ (a & c),  # 0x6c, what the tests write
    **dict.fromkeys(("v_cvt_pk_i16_f32", "v_cvt_pk_i16_i32"), _pair_of_words(-(2**15), 2**15 - 1, np.int16)),
    **dict.fromkeys(("v_cvt_pk_u16_f32", "v_cvt_pk_u16_u32"), _pair_of_words(0, 2**16 - 1, np.uint16)),
    "v_div_fixup_f16": _fixed_half,
    "v_trunc_f16": np.trunc,
    "v_floor_f16": np.floor,
    "v_ceil_f16": np.ceil,
    "v_rndne_f16": np.rint,
    "v_ldexp_f16": _ldexp_half,
    "v_fract_f16": _fraction_half,
    "v_frexp_mant_f16": lambda x: np.asarray(np.where(np.isfinite(x), np.frexp(x)[0], x)).astype(F16),
    "v_frexp_exp_i16_f16": lambda x: np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int16),
    **dict.fromkeys(("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"), _nearest_up),
    "v_rcp_f16": _half(np.reciprocal),
    "v_sqrt_f16": _half(np.sqrt),
    "v_rsq_f16": _half(lambda x: 1 / np.sqrt(x)),
    "v_exp_f16": _half(np.exp2),
    "v_log_f16": _half(np.log2),
    "v_sin_f16": _half(lambda x: np.sin(2 * np.pi * np.fmod(x, 1.0))),
    "v_cos_f16": _half(lambda x: np.cos(2 * np.pi * np.fmod(x, 1.0))),
    "v_cvt_f16_i16": quiet(lambda x: x.astype(F64).astype(F16)),
    "v_cvt_f16_u16": quiet(lambda x: x.astype(F64).astype(F16)),
    "v_cvt_i16_f16": saturated(-(2**15), 2**15 - 1, np.int16),
    "v_cvt_u16_f16": saturated(0, 2**16 - 1, np.uint16),
    **dict.fromkeys(
        ("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"),
        lambda x: saturated(-(2**31), 2**31 - 1, I32)(quiet(np.floor)(x)),
    ),
}
