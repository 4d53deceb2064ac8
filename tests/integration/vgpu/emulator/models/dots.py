"""Models of dot products of two registers with narrow elements, and of sums of absolute differences."""

from __future__ import annotations

import numpy as np

from tests.integration.vgpu.emulator.models.floats import Model, fused_half
from tests.integration.vgpu.emulator.models.numbers import Array, fused

U32, I32, F32, F16 = np.uint32, np.int32, np.float32, np.float16


def parts(x: Array, bits: int, *, signed: bool) -> Array:
    """Elements of each word, lowest first, as integers of 64 bits."""
    words = x.view(U32).astype(np.int64)
    cut = np.stack([words >> at & (1 << bits) - 1 for at in range(0, 32, bits)])
    return np.where(signed & (cut >> (bits - 1) > 0), cut - (1 << bits), cut)


def dot(bits: int, *, signs: tuple[bool, bool], saturate: bool = False) -> Model:
    """Of unsigned results where both sources are unsigned."""

    def model(a: Array, b: Array, c: Array) -> Array:
        total = (parts(a, bits, signed=signs[0]) * parts(b, bits, signed=signs[1])).sum(axis=0) + c.astype(
            np.int64
        )
        if saturate:
            kind = np.iinfo(c.dtype)
            total = np.clip(total, kind.min, kind.max)
        return np.asarray((total & 0xFFFFFFFF).astype(U32).view(c.dtype))

    return model


def halves(x: Array) -> tuple[Array, Array]:
    return x.view(np.uint16)[0::2], x.view(np.uint16)[1::2]


def bf16_floats(x: Array) -> Array:
    return (x.astype(U32) << U32(16)).view(F32)


def dot_of_pairs(single: Model) -> Model:
    """Low halves, then high ones, multiplied and added with one rounding each; `single`: 16 bits as
    float32."""

    def model(a: Array, b: Array, c: Array) -> Array:
        first, second = ([single(x) for x in halves(one)] for one in (a, b))
        return fused(first[1], second[1], fused(first[0], second[0], c))

    return model


def dot_of_halves(a: Array, b: Array, c: Array) -> Array:
    """Each step is rounded to a half."""
    first, second = ([x.view(F16) for x in halves(one)] for one in (a, b))
    return fused_half(first[1], second[1], fused_half(first[0], second[0], c))


def toward_zero_bf16(x: Array) -> Array:
    """Float32 to float32 with the 8 bits of mantissa that bfloat16 has."""
    return np.asarray(np.where(np.isnan(x), F32(np.nan), (x.view(U32) & U32(0xFFFF0000)).view(F32)))


def dot_of_bf16(a: Array, b: Array, c: Array) -> Array:
    """Each step is truncated to bfloat16."""
    first, second = ([bf16_floats(x) for x in halves(one)] for one in (a, b))
    low = toward_zero_bf16(fused(first[0], second[0], bf16_floats(c)))
    return (toward_zero_bf16(fused(first[1], second[1], low)).view(U32) >> U32(16)).astype(np.uint16)


def differences(bits: int, *, shift: int = 0, masked: bool = False) -> Model:
    def model(a: Array, b: Array, c: Array) -> Array:
        x, y = parts(a, bits, signed=False), parts(b, bits, signed=False)
        counted = np.where(masked & (y == 0), 0, np.abs(x - y)).sum(axis=0)
        total: Array = ((counted << shift) + c & 0xFFFFFFFF).astype(U32)
        return total

    return model


def shifted_bytes(low: int, high: int) -> Model:
    def model(a: Array, b: Array, n: Array) -> Array:
        first, second = (np.clip(x >> (n & U32(31)).astype(I32), low, high) & 255 for x in (a, b))
        return (first | second << 8).astype(np.uint16)

    return model


def saturated_bytes(x: Array) -> Array:
    first, second = (np.clip(one.view(np.int16).astype(I32), 0, 255) for one in halves(x))
    return (first | second << 8).astype(np.uint16)


MODELS: dict[str, Model] = {
    **{f"v_dot2{name}_f32_f16": dot_of_pairs(lambda h: h.view(F16).astype(F32)) for name in ("", "c", "acc")},
    **{f"v_dot2{name}_f32_bf16": dot_of_pairs(bf16_floats) for name in ("", "c", "acc")},
    "v_dot2_f16_f16": dot_of_halves,
    "v_dot2_bf16_bf16": dot_of_bf16,
    **{f"v_dot{32 // n}_i32_i{n}": dot(n, signs=(True, True)) for n in (16, 8, 4)},
    **{f"v_dot{32 // n}_u32_u{n}": dot(n, signs=(False, False)) for n in (16, 8, 4)},
    **{f"v_dot{32 // n}_i32_iu{n}": dot(n, signs=(False, False)) for n in (8, 4)},
    **{f"v_dot{32 // n}c_i32_i{n}": dot(n, signs=(True, True)) for n in (16, 8, 4)},
    "v_sad_u32": lambda a, b, c: (np.abs(a.astype(np.int64) - b) + c & 0xFFFFFFFF).astype(U32),
    "v_sad_u16": differences(16),
    "v_sad_u8": differences(8),
    "v_sad_hi_u8": differences(8, shift=16),
    "v_msad_u8": differences(8, masked=True),
    "v_ashr_pk_i8_i32": shifted_bytes(-128, 127),
    "v_ashr_pk_u8_i32": shifted_bytes(0, 255),
    "v_sat_pk_u8_i16": saturated_bytes,
    "v_cvt_f32_bf16": bf16_floats,
}
