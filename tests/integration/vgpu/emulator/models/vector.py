"""Models of vector instructions: numpy functions of all lanes of a register, written from the ISA guides'
descriptions.

A model takes the sources (and the old destination last, where the instruction reads it) and returns the
destination, or the destination and a mask. Types are those of the table's slots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.integration.vgpu.emulator.models import dots, doubles, order, small_floats
from tests.integration.vgpu.emulator.models.floats import (
    Model,
    best,
    best3,
    bf16,
    division_fixup,
    division_fmas,
    division_scale,
    fraction,
    fused_half,
    half_math,
    ldexp,
    mixed_half,
    packed_pair,
    quiet,
    saturated,
    toward_zero,
    transcendental,
)
from tests.integration.vgpu.emulator.models.numbers import Array, fused

U32, I32, U64, F32, F16, F64 = np.uint32, np.int32, np.uint64, np.float32, np.float16, np.float64


def wide(x: Array) -> Array:
    return x.astype(np.int64) if x.dtype.kind == "i" else x.astype(np.uint64)


def carry_sum(a: Array, b: Array, c: Array | int = 0) -> tuple[Array, Array]:
    total = wide(a) + wide(b) + np.uint64(1) * np.asarray(c, dtype=np.uint64)
    return total.astype(U32), total >> np.uint64(32) != 0


def borrow(a: Array, b: Array, c: Array | int = 0) -> tuple[Array, Array]:
    taken = wide(b) + np.asarray(c, dtype=np.uint64)
    return (wide(a) - taken).astype(U32), taken > wide(a)


def mad64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    exact = [x * y + z for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    return np.array([x % 2**64 for x in exact], dtype=U64), np.array([x >= 2**64 for x in exact])


def signed24(x: Array) -> Array:
    low = (x & U32(0xFFFFFF)).astype(np.int64)
    return np.where(low >= 1 << 23, low - (1 << 24), low)


def low24(x: Array) -> Array:
    return (x & U32(0xFFFFFF)).astype(np.int64)


def to_u32(x: Array) -> Array:
    return (x & 0xFFFFFFFF).astype(U32)


def shift(x: Array, n: Array, size: int) -> Array:
    return np.asarray((n % np.asarray(size, dtype=n.dtype)).astype(x.dtype))


def reversed_bits(x: Array) -> Array:
    return np.array([int(f"{n:032b}"[::-1], 2) for n in x.tolist()], dtype=U32)


def count_leading(x: Array) -> Array:
    return np.array([32 - n.bit_length() if n else -1 for n in x.tolist()], dtype=I32)


def count_trailing(x: Array) -> Array:
    return np.array([(n & -n).bit_length() - 1 if n else -1 for n in x.tolist()], dtype=I32)


def leading_signs(x: Array) -> Array:
    def one(n: int) -> int:
        text = f"{n:032b}"
        return text.find("1" if text[0] == "0" else "0")  # -1 when there is none

    return np.array([one(n) for n in x.tolist()], dtype=I32)


def counted_below(a: Array, b: Array, first: int) -> Array:
    """Set bits of `a` whose lane (bit number + first) is below the lane's own."""
    return np.array(
        [
            (sum(n >> bit & 1 for bit in range(32) if bit + first < lane) + m) % 2**32
            for lane, (n, m) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
        ],
        dtype=U32,
    )


def ones(x: Array, y: Array) -> Array:
    return (np.array([bin(n).count("1") for n in x.tolist()], dtype=U32) + y).astype(U32)


def extract(a: Array, offset: Array, width: Array) -> Array:
    return np.array(
        [
            n >> (o % 32) & ((1 << (w % 32)) - 1)
            for n, o, w in zip(a.tolist(), offset.tolist(), width.tolist(), strict=True)
        ],
        dtype=U32,
    )


def extract_signed(a: Array, offset: Array, width: Array) -> Array:
    def one(n: int, o: int, w: int) -> int:
        if w == 0:
            return 0
        field = n >> o  # Python shifts arithmetically, as the guide does when offset + width reaches the sign
        field &= (1 << w) - 1
        return field - (1 << w) if field >> (w - 1) else field

    return np.array(
        [one(n, o % 32, w % 32) for n, o, w in zip(a.tolist(), offset.tolist(), width.tolist(), strict=True)],
        dtype=I32,
    )


def permuted(a: Array, b: Array, selector: Array) -> Array:
    def one(x: int, y: int, s: int) -> int:
        source = y.to_bytes(4, "little") + x.to_bytes(4, "little")
        signs = [source[2 * i + 1] >> 7 for i in range(4)]
        out = bytearray()
        for byte in s.to_bytes(4, "little"):
            if byte <= 7:
                out.append(source[byte])
            elif byte <= 11:
                out.append(255 * signs[byte - 8])
            else:
                out.append(0 if byte == 12 else 255)
        return int.from_bytes(out, "little")

    return np.array([one(*t) for t in zip(a.tolist(), b.tolist(), selector.tolist(), strict=True)], dtype=U32)


def aligned(unit: int) -> Model:
    def model(a: Array, b: Array, n: Array) -> Array:
        places = 32 // unit
        return np.array(
            [
                ((x << 32 | y) >> (unit * (k % places))) & 0xFFFFFFFF
                for x, y, k in zip(a.tolist(), b.tolist(), n.tolist(), strict=True)
            ],
            dtype=U32,
        )

    return model


def truth_table(a: Array, b: Array, c: Array) -> Array:
    table = 0x6C  # what the tests write
    out = np.zeros(a.shape, dtype=U32)
    for bit in range(32):
        index = (
            (a >> U32(bit) & U32(1)) << U32(2) | (b >> U32(bit) & U32(1)) << U32(1) | c >> U32(bit) & U32(1)
        )
        out |= (U32(table) >> index & U32(1)) << U32(bit)
    return out


def _twice(*names: str) -> Callable[[Model], dict[str, Model]]:
    return lambda model: dict.fromkeys(names, model)


MODELS: dict[str, Model] = {
    **doubles.MODELS,
    **order.MODELS,
    **small_floats.MODELS,
    **dots.MODELS,
    **_twice("v_add_u32", "v_add_nc_u32", "v_add_nc_i32", "v_add_i32")(lambda a, b: carry_sum(a, b)[0]),
    **_twice("v_sub_u32", "v_sub_nc_u32", "v_sub_nc_i32", "v_sub_i32")(lambda a, b: borrow(a, b)[0]),
    **_twice("v_subrev_u32", "v_subrev_nc_u32")(lambda a, b: borrow(b, a)[0]),
    "v_add_co_u32": carry_sum,
    "v_sub_co_u32": borrow,
    "v_subrev_co_u32": lambda a, b: borrow(b, a),
    **_twice("v_addc_co_u32", "v_add_co_ci_u32")(carry_sum),
    **_twice("v_subb_co_u32", "v_sub_co_ci_u32")(borrow),
    **_twice("v_subbrev_co_u32", "v_subrev_co_ci_u32")(lambda a, b, c: borrow(b, a, c)),
    "v_add3_u32": lambda a, b, c: (wide(a) + wide(b) + wide(c)).astype(U32),
    "v_lshl_add_u32": lambda a, b, c: ((a << shift(a, b, 32)) + c).astype(U32),
    "v_add_lshl_u32": lambda a, b, c: ((a + b) << shift(a, c, 32)).astype(U32),
    "v_xad_u32": lambda a, b, c: ((a ^ b) + c).astype(U32),
    "v_lshl_add_u64": lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c,
    "v_mul_lo_i32": lambda a, b: (wide(a) * wide(b)).astype(U32),
    "v_mul_lo_u32": lambda a, b: (wide(a) * wide(b)).astype(U32),
    "v_mul_hi_u32": lambda a, b: (wide(a) * wide(b) >> np.uint64(32)).astype(U32),
    "v_mul_hi_i32": lambda a, b: (wide(a) * wide(b) >> 32).astype(I32),
    "v_mul_u32_u24": lambda a, b: to_u32(low24(a) * low24(b)),
    "v_mul_i32_i24": lambda a, b: to_u32(signed24(a) * signed24(b)),
    "v_mad_u32_u24": lambda a, b, c: to_u32(low24(a) * low24(b) + c.astype(np.int64)),
    "v_mad_i32_i24": lambda a, b, c: to_u32(signed24(a) * signed24(b) + c.astype(np.int64)),
    **_twice("v_mad_u64_u32", "v_mad_co_u64_u32")(mad64),
    "v_mad_u32_u16": lambda a, b, c: to_u32(a.astype(np.int64) * b.astype(np.int64) + c.astype(np.int64)),
    "v_and_b32": np.bitwise_and,
    "v_or_b32": np.bitwise_or,
    "v_xor_b32": np.bitwise_xor,
    "v_xnor_b32": lambda a, b: np.bitwise_not(np.bitwise_xor(a, b)),
    "v_not_b32": np.bitwise_not,
    "v_bfrev_b32": reversed_bits,
    "v_and_or_b32": lambda a, b, c: np.bitwise_or(np.bitwise_and(a, b), c),
    "v_or3_b32": lambda a, b, c: np.bitwise_or(np.bitwise_or(a, b), c),
    "v_xor3_b32": lambda a, b, c: np.bitwise_xor(np.bitwise_xor(a, b), c),
    "v_lshl_or_b32": lambda a, b, c: (a << shift(a, b, 32)) | c,
    "v_lshlrev_b32": lambda n, x: x << shift(x, n, 32),
    "v_lshrrev_b32": lambda n, x: x >> shift(x, n, 32),
    "v_ashrrev_i32": lambda n, x: x >> shift(x, n, 32),
    "v_lshlrev_b64": lambda n, x: x << shift(x, n, 64),
    "v_lshrrev_b64": lambda n, x: x >> shift(x, n, 64),
    "v_ashrrev_i64": lambda n, x: x >> shift(x, n, 64),
    "v_bfe_u32": extract,
    "v_bfe_i32": extract_signed,
    "v_bfi_b32": lambda m, a, b: np.where(False, a, (a & m) | (b & ~m)),
    "v_bfm_b32": lambda n, o: to_u32(
        ((np.int64(1) << (n % 32).astype(np.int64)) - 1) << (o % 32).astype(np.int64)
    ),
    "v_alignbit_b32": aligned(1),
    "v_alignbyte_b32": aligned(8),
    "v_perm_b32": permuted,
    "v_bitop3_b32": truth_table,
    "v_bcnt_u32_b32": ones,
    **_twice("v_ffbh_u32", "v_clz_i32_u32")(count_leading),
    **_twice("v_ffbh_i32", "v_cls_i32")(leading_signs),
    "v_mbcnt_lo_u32_b32": lambda a, b: counted_below(a, b, 0),
    "v_mbcnt_hi_u32_b32": lambda a, b: counted_below(a, b, 32),
    **_twice("v_ffbl_b32", "v_ctz_i32_b32")(count_trailing),
    **_twice("v_min_i32", "v_min_u32", "v_min_i16", "v_min_u16")(np.minimum),
    **_twice("v_max_i32", "v_max_u32", "v_max_i16", "v_max_u16")(np.maximum),
    **_twice("v_cndmask_b32", "v_cndmask_b16")(lambda a, b, mask: np.where(mask, b, a)),
    **_twice(
        "v_mov_b32",
        "v_accvgpr_read_b32",
        "v_accvgpr_write_b32",
        "v_accvgpr_mov_b32",
        "v_mov_b64",
        "v_mov_b16",
    )(np.copy),
    "v_cvt_u32_u16": lambda x: x.astype(U32),
    "v_cvt_i32_i16": lambda x: x.astype(I32),
    **_twice("v_add_u16", "v_add_nc_u16")(lambda a, b: (a.astype(U32) + b).astype(np.uint16)),
    **_twice("v_sub_u16", "v_sub_nc_u16")(lambda a, b: (a.astype(U32) - b).astype(np.uint16)),
    "v_mul_lo_u16": lambda a, b: (a.astype(U32) * b).astype(np.uint16),
    "v_lshlrev_b16": lambda n, x: (x.astype(U32) << shift(x, n, 16)).astype(np.uint16),
    "v_lshrrev_b16": lambda n, x: x >> shift(x, n, 16),
    "v_ashrrev_i16": lambda n, x: x >> shift(x, n, 16),
    "v_and_b16": np.bitwise_and,
    "v_or_b16": np.bitwise_or,
    "v_xor_b16": np.bitwise_xor,
    "v_add_f32": quiet(np.add),
    "v_sub_f32": quiet(np.subtract),
    "v_subrev_f32": quiet(lambda a, b: np.subtract(b, a)),
    "v_mul_f32": quiet(np.multiply),
    **_twice("v_fma_f32", "v_fmamk_f32", "v_fmaak_f32", "v_fmac_f32", "v_fma_mix_f32")(fused),
    **_twice("v_max_f32", "v_max_f16")(best(True)),
    **_twice("v_min_f32", "v_min_f16")(best(False)),
    "v_max3_f32": best3(True),
    "v_min3_f32": best3(False),
    "v_trunc_f32": np.trunc,
    "v_floor_f32": np.floor,
    "v_ceil_f32": np.ceil,
    "v_rndne_f32": np.rint,
    "v_fract_f32": fraction,
    "v_ldexp_f32": ldexp,
    "v_div_scale_f32": division_scale,
    "v_div_fixup_f32": division_fixup,
    "v_div_fmas_f32": division_fmas,
    "v_exp_f32": transcendental(np.exp2),
    "v_log_f32": transcendental(np.log2),
    **_twice("v_rcp_f32", "v_rcp_iflag_f32")(transcendental(np.reciprocal)),
    "v_rsq_f32": transcendental(lambda x: 1 / np.sqrt(x)),
    "v_sqrt_f32": transcendental(np.sqrt),
    "v_sin_f32": quiet(lambda x: np.sin(2 * np.pi * np.fmod(x.astype(F64), 1.0)).astype(F32)),
    "v_cos_f32": quiet(lambda x: np.cos(2 * np.pi * np.fmod(x.astype(F64), 1.0)).astype(F32)),
    **_twice("v_fma_f16", "v_fmac_f16", "v_fmaak_f16", "v_fmamk_f16")(fused_half),
    "v_add_f16": half_math(np.add),
    "v_sub_f16": half_math(np.subtract),
    "v_subrev_f16": half_math(lambda a, b: np.subtract(b, a)),
    "v_mul_f16": half_math(np.multiply),
    **_twice("v_fma_mixlo_f16", "v_fma_mixhi_f16")(mixed_half),
    **_twice("v_cvt_f32_i32", "v_cvt_f32_u32")(lambda x: x.astype(F32)),
    "v_cvt_i32_f32": saturated(-(2**31), 2**31 - 1, I32),
    "v_cvt_u32_f32": saturated(0, 2**32 - 1, U32),
    "v_cvt_f16_f32": quiet(lambda x: x.astype(F16)),
    "v_cvt_f32_f16": lambda x: x.astype(F32),
    **{f"v_cvt_f32_ubyte{n}": lambda x, n=n: (x.view(np.uint8)[n::4]).astype(F32) for n in range(4)},
    **_twice("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32")(
        lambda a, b: packed_pair(toward_zero(a), toward_zero(b))
    ),
    "v_cvt_pk_f16_f32": quiet(lambda a, b: packed_pair(a.astype(F16), b.astype(F16))),
    "v_cvt_pk_bf16_f32": lambda a, b: packed_pair(bf16(a), bf16(b)),
    "v_pack_b32_f16": packed_pair,
}

_INTEGER = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "ne": np.not_equal,
}  # fmt: skip
_FLOAT: dict[str, Model] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lg": lambda a, b: np.less(a, b) | np.greater(a, b),
    "o": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~np.greater_equal(a, b),
    "nlg": lambda a, b: np.equal(a, b) | np.isnan(a) | np.isnan(b),
    "ngt": lambda a, b: ~np.greater(a, b),
    "nle": lambda a, b: ~np.less_equal(a, b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~np.less(a, b),
}
for _prefix in ("v_cmp", "v_cmpx"):
    for _type in ("i32", "u32", "i64", "u64", "i16", "u16"):
        MODELS |= {f"{_prefix}_{name}_{_type}": model for name, model in _INTEGER.items()}
    for _type in ("f32", "f16", "f64"):
        MODELS |= {f"{_prefix}_{name}_{_type}": quiet(model) for name, model in _FLOAT.items()}

UNITS = {
    "v_exp_f32": 1, "v_log_f32": 1, "v_rcp_f32": 0, "v_rcp_iflag_f32": 0, "v_rsq_f32": 1, "v_sqrt_f32": 0,
        "v_sin_f32": 1, "v_cos_f32": 1,
}  # fmt: skip
"""Units in the last place that a model and the table may differ by, where neither is exact; 0 for all
others."""
