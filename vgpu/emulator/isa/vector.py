"""Vector instructions, lane by lane: integers, floating point, comparisons, and packed halves.

Rounding is to nearest even and denormal numbers are kept, as in every accepted kernel descriptor; the
transcendental unit flushes them. Vector halves are computed in float32 and rounded once. Packed statements
are executed for the low and the high half: op_sel and op_sel_hi select the half of a source that each of the
two reads, neg_lo and neg_hi negate it. Halves of packed float32 operands are registers. Comparisons put one
bit per lane into a scalar mask, `v_cmpx` also into EXEC.
"""

from collections.abc import Mapping
from dataclasses import replace

from vgpu.emulator.isa import doubles, small_floats
from vgpu.emulator.isa.entry import LAST_PLACE, SUM_ORDER, Entry, merged, table
from vgpu.emulator.isa.scalar import FLOAT_RELATIONS

_ADDITION = {
    "v_add_u32 v_add_nc_u32": "D.u32 = S0.u32 + S1.u32; if (I->clamp && D.u32 < S0.u32) D.u32 = ~0u",
    "v_sub_u32 v_sub_nc_u32": "D.u32 = S0.u32 - S1.u32; if (I->clamp && S0.u32 < S1.u32) D.u32 = 0",
    "v_subrev_u32 v_subrev_nc_u32": "D.u32 = S1.u32 - S0.u32; if (I->clamp && S1.u32 < S0.u32) D.u32 = 0",
    "v_add_nc_i32 v_add_i32": "D.u32 = S0.u32 + S1.u32",
    "v_sub_nc_i32 v_sub_i32": "D.u32 = S0.u32 - S1.u32",
    "v_add_co_u32": "D.u32 = S0.u32 + S1.u32; SD.mask = D.u32 < S0.u32",
    "v_sub_co_u32": "D.u32 = S0.u32 - S1.u32; SD.mask = S1.u32 > S0.u32",
    "v_subrev_co_u32": "D.u32 = S1.u32 - S0.u32; SD.mask = S0.u32 > S1.u32",
    "v_addc_co_u32 v_add_co_ci_u32": "u64 t = (u64)S0.u32 + S1.u32 + S2.mask; D.u32 = (u32)t; "
    "SD.mask = (u32)(t >> 32)",
    "v_subb_co_u32 v_sub_co_ci_u32": "u64 t = (u64)S0.u32 - S1.u32 - S2.mask; D.u32 = (u32)t; "
    "SD.mask = (u32)(t >> 32) & 1",
    "v_subbrev_co_u32 v_subrev_co_ci_u32": "u64 t = (u64)S1.u32 - S0.u32 - S2.mask; D.u32 = (u32)t; "
    "SD.mask = (u32)(t >> 32) & 1",
    "v_add3_u32": "D.u32 = S0.u32 + S1.u32 + S2.u32",
    "v_lshl_add_u32": "D.u32 = (S0.u32 << (S1.u32 & 31)) + S2.u32",
    "v_add_lshl_u32": "D.u32 = (S0.u32 + S1.u32) << (S2.u32 & 31)",
    "v_xad_u32": "D.u32 = (S0.u32 ^ S1.u32) + S2.u32",
    "v_lshl_add_u64": "D.u64 = (S0.u64 << (S1.u32 & 7)) + S2.u64",
}

_PRODUCTS = {
    "v_mul_lo_u32 v_mul_lo_i32": "D.u32 = S0.u32 * S1.u32",
    "v_mul_hi_u32": "D.u32 = (u32)((u64)S0.u32 * S1.u32 >> 32)",
    "v_mul_hi_i32": "D.i32 = (i32)((i64)S0.i32 * S1.i32 >> 32)",
    "v_mul_u32_u24": "D.u32 = (S0.u32 & 0xffffff) * (S1.u32 & 0xffffff)",
    "v_mul_i32_i24": "D.u32 = (u32)((i32)(S0.u32 << 8) >> 8) * (u32)((i32)(S1.u32 << 8) >> 8)",
    "v_mad_u32_u24": "D.u32 = (S0.u32 & 0xffffff) * (S1.u32 & 0xffffff) + S2.u32",
    "v_mad_i32_i24": "D.u32 = (u32)((i32)(S0.u32 << 8) >> 8) * (u32)((i32)(S1.u32 << 8) >> 8) + S2.u32",
    "v_mad_u64_u32 v_mad_co_u64_u32": "u64 p = (u64)S0.u32 * S1.u32; D.u64 = p + S2.u64; SD.mask = D.u64 < p",
    # the carry is the sign of the sum of 65 bits
    "v_mad_i64_i32 v_mad_co_i64_i32": "__int128 t = (__int128)((i64)S0.i32 * S1.i32) + (i64)S2.u64; "
    "D.u64 = (u64)t; SD.mask = t < 0",
    "v_mul_hi_u32_u24": "D.u32 = (u32)((u64)(S0.u32 & 0xffffff) * (S1.u32 & 0xffffff) >> 32)",
    "v_mul_hi_i32_i24": "D.u32 = (u32)((i64)((i32)(S0.u32 << 8) >> 8) * ((i32)(S1.u32 << 8) >> 8) >> 32)",
    "v_mad_i32_i16": "D.u32 = (u32)(S0.i16 * S1.i16) + S2.u32",
    "v_mad_u32_u16": "D.u32 = S0.u16 * S1.u16 + S2.u32",
    "v_sad_u32": "D.u32 = apart(S0.u32, S1.u32) + S2.u32",
    "v_sad_u16": "D.u32 = differences(S0.u32, S1.u32, 16, 0) + S2.u32",
    "v_sad_u8": "D.u32 = differences(S0.u32, S1.u32, 8, 0) + S2.u32",
    "v_sad_hi_u8": "D.u32 = (differences(S0.u32, S1.u32, 8, 0) << 16) + S2.u32",
    "v_msad_u8": "D.u32 = differences(S0.u32, S1.u32, 8, 1) + S2.u32",
}

_BITS = {
    "v_and_b32": "D.u32 = S0.u32 & S1.u32",
    "v_or_b32": "D.u32 = S0.u32 | S1.u32",
    "v_xor_b32": "D.u32 = S0.u32 ^ S1.u32",
    "v_xnor_b32": "D.u32 = ~(S0.u32 ^ S1.u32)",
    "v_not_b32": "D.u32 = ~S0.u32",
    "v_bfrev_b32": "D.u32 = reverse_bits(S0.u32)",
    "v_and_or_b32": "D.u32 = (S0.u32 & S1.u32) | S2.u32",
    "v_or3_b32": "D.u32 = S0.u32 | S1.u32 | S2.u32",
    "v_xor3_b32": "D.u32 = S0.u32 ^ S1.u32 ^ S2.u32",
    "v_lshl_or_b32": "D.u32 = (S0.u32 << (S1.u32 & 31)) | S2.u32",
    "v_lshlrev_b32": "D.u32 = S1.u32 << (S0.u32 & 31)",
    "v_lshrrev_b32": "D.u32 = S1.u32 >> (S0.u32 & 31)",
    "v_ashrrev_i32": "D.i32 = S1.i32 >> (S0.u32 & 31)",
    "v_lshlrev_b64": "D.u64 = S1.u64 << (S0.u32 & 63)",
    "v_lshrrev_b64": "D.u64 = S1.u64 >> (S0.u32 & 63)",
    "v_ashrrev_i64": "D.i64 = S1.i64 >> (S0.u32 & 63)",
    "v_bfe_u32": "D.u32 = field_u32(S0.u32, S1.u32, S2.u32)",
    "v_bfe_i32": "D.i32 = field_i32(S0.i32, S1.u32, S2.u32)",
    "v_bfi_b32": "D.u32 = (S0.u32 & S1.u32) | (~S0.u32 & S2.u32)",
    "v_bfm_b32": "D.u32 = ((1u << (S0.u32 & 31)) - 1) << (S1.u32 & 31)",
    "v_alignbit_b32": "D.u32 = (u32)(pair(S1.u32, S0.u32) >> (S2.u16 & 31))",
    "v_alignbyte_b32": "D.u32 = (u32)(pair(S1.u32, S0.u32) >> (8 * (S2.u16 & 3)))",
    # the immediate is a truth table, indexed by the bits of S0, S1, S2 with S2 lowest
    "v_bitop3_b32": "D.u32 = bits_of_table(S0.u32, S1.u32, S2.u32, I->immediate)",
    "v_bcnt_u32_b32": "D.u32 = (u32)__builtin_popcount(S0.u32) + S1.u32",
    "v_ffbh_u32 v_clz_i32_u32": "D.i32 = S0.u32 ? __builtin_clz(S0.u32) : -1",
    # leading bits that equal the sign; -1 when all do
    "v_ffbh_i32 v_cls_i32": "u32 x = S0.u32 ^ (u32)((i32)S0.u32 >> 31); D.i32 = x ? __builtin_clz(x) : -1",
    # bits set below this lane; l is its number
    "v_mbcnt_lo_u32_b32": "D.u32 = S1.u32 + (u32)__builtin_popcount(S0.u32 & (l < 32 ? (1u << l) - 1 : ~0u))",
    "v_mbcnt_hi_u32_b32": "D.u32 = S1.u32 + (u32)__builtin_popcount(S0.u32 & (l < 32 ? 0 : (1u << (l & 31)) "
    "- 1))",
    "v_ffbl_b32 v_ctz_i32_b32": "D.i32 = S0.u32 ? __builtin_ctz(S0.u32) : -1",
}

_EXTREMES = {"min": "<", "max": ">"}
_ORDER = {
    **{
        f"v_{name}_{t}": f"D.{t} = S0.{t} {sign} S1.{t} ? S0.{t} : S1.{t}"
        for name, sign in _EXTREMES.items()
        for t in ("i32", "u32", "i16", "u16")
    },
    **{
        f"v_{name}_{t}": f"D.{t} = {name}_{t}(S0.{t}, S1.{t}, S2.{t})"
        for t in ("i32", "u32")
        for name in ("min3", "max3", "med3", "maxmin", "minmax")
    },
}

_SELECTION = {
    "v_cndmask_b32": "D.b32 = S2.mask ? S1.b32 : S0.b32",
    "v_cndmask_b16": "D.u16 = S2.mask ? S1.u16 : S0.u16",
}

_MOVES = {
    "v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32": "D.u32 = S0.u32",
    "v_mov_b64": "D.u64 = S0.u64",
    "v_mov_b16": "D.u16 = S0.u16",
    "v_cvt_u32_u16": "D.u32 = S0.u16",
    "v_cvt_i32_i16": "D.i32 = S0.i16",
}

_WORDS = {
    "v_add_u16 v_add_nc_u16": "D.u16 = S0.u16 + S1.u16; if (I->clamp && D.u16 > 0xffff) D.u16 = 0xffff",
    "v_sub_u16 v_sub_nc_u16": "D.u16 = I->clamp && S0.u16 < S1.u16 ? 0 : S0.u16 - S1.u16",
    "v_subrev_u16": "D.u16 = I->clamp && S1.u16 < S0.u16 ? 0 : S1.u16 - S0.u16",
    "v_not_b16": "D.u16 = ~S0.u16",
    "v_mul_lo_u16": "D.u16 = S0.u16 * S1.u16",
    "v_mad_legacy_u16 v_mad_legacy_i16": "D.u16 = S0.u16 * S1.u16 + S2.u16",
    "v_lshlrev_b16": "D.u16 = S1.u16 << (S0.u16 & 15)",
    "v_lshrrev_b16": "D.u16 = S1.u16 >> (S0.u16 & 15)",
    "v_ashrrev_i16": "D.i16 = S1.i16 >> (S0.u16 & 15)",
    "v_and_b16": "D.u16 = S0.u16 & S1.u16",
    "v_or_b16": "D.u16 = S0.u16 | S1.u16",
    "v_xor_b16": "D.u16 = S0.u16 ^ S1.u16",
}

_BOTH = {
    "add": "D.{t} = S0.{t} + S1.{t}",
    "sub": "D.{t} = S0.{t} - S1.{t}",
    "subrev": "D.{t} = S1.{t} - S0.{t}",
    "mul": "D.{t} = S0.{t} * S1.{t}",
    "max": "D.{t} = max_f32(S0.{t}, S1.{t})",
    "min": "D.{t} = min_f32(S0.{t}, S1.{t})",
    "max_num": "D.{t} = max_num_f32(S0.{t}, S1.{t})",
    "min_num": "D.{t} = min_num_f32(S0.{t}, S1.{t})",
    "maximum": "D.{t} = maximum_f32(S0.{t}, S1.{t})",
    "minimum": "D.{t} = minimum_f32(S0.{t}, S1.{t})",
    "trunc": "D.{t} = truncf(S0.{t})",
    "floor": "D.{t} = floorf(S0.{t})",
    "ceil": "D.{t} = ceilf(S0.{t})",
    "rndne": "D.{t} = rintf(S0.{t})",
}
"""Of float32 and, computed in it, of halves."""
_THREE = {
    "max3": "D.{t} = max_f32(max_f32(S0.{t}, S1.{t}), S2.{t})",
    "min3": "D.{t} = min_f32(min_f32(S0.{t}, S1.{t}), S2.{t})",
    "med3": "D.{t} = med3_f32(S0.{t}, S1.{t}, S2.{t})",
    "maxmin": "D.{t} = min_f32(max_f32(S0.{t}, S1.{t}), S2.{t})",
    "minmax": "D.{t} = max_f32(min_f32(S0.{t}, S1.{t}), S2.{t})",
    "max3_num": "D.{t} = max_num_f32(max_num_f32(S0.{t}, S1.{t}), S2.{t})",
    "min3_num": "D.{t} = min_num_f32(min_num_f32(S0.{t}, S1.{t}), S2.{t})",
    "med3_num": "D.{t} = med3_num_f32(S0.{t}, S1.{t}, S2.{t})",
    "maxmin_num": "D.{t} = min_num_f32(max_num_f32(S0.{t}, S1.{t}), S2.{t})",
    "minmax_num": "D.{t} = max_num_f32(min_num_f32(S0.{t}, S1.{t}), S2.{t})",
    "maximum3": "D.{t} = maximum_f32(maximum_f32(S0.{t}, S1.{t}), S2.{t})",
    "minimum3": "D.{t} = minimum_f32(minimum_f32(S0.{t}, S1.{t}), S2.{t})",
    "maximumminimum": "D.{t} = minimum_f32(maximum_f32(S0.{t}, S1.{t}), S2.{t})",
    "minimummaximum": "D.{t} = maximum_f32(minimum_f32(S0.{t}, S1.{t}), S2.{t})",
}


def _of_type(codes: Mapping[str, str], kind: str, prefix: str = "v_") -> dict[str, str]:
    """The statements for one type; maxima and minima are named `_num` from gfx12 on."""
    return {f"{prefix}{name}_{kind}": code.format(t=kind) for name, code in codes.items()}


_SINGLE = {
    **_of_type(_BOTH, "f32"),
    **_of_type(_THREE, "f32"),
    "v_fma_f32 v_fmamk_f32 v_fmaak_f32": "D.f32 = fmaf(S0.f32, S1.f32, S2.f32)",
    "v_fmac_f32": "D.f32 = fmaf(S0.f32, S1.f32, D.f32)",
    # not fused, and without denormal numbers whatever the mode has
    "v_mad_f32 v_madmk_f32 v_madak_f32": "D.f32 = flushed_sum(S0.f32, S1.f32, S2.f32)",
    "v_mac_f32": "D.f32 = flushed_sum(S0.f32, S1.f32, D.f32)",
    "v_frexp_mant_f32": "D.f32 = (float)frexp_mantissa(S0.f32)",
    "v_frexp_exp_i32_f32": "D.i32 = frexp_exponent(S0.f32)",
    "v_fract_f32": "D.f32 = fraction(S0.f32)",
    "v_ldexp_f32": "D.f32 = scale_by_power(S0.f32, S1.i32)",
}

_DIVISION = {
    "v_div_scale_f32": "u32 scaled; D.f32 = division_scale(S0.f32, S1.f32, S2.f32, &scaled); "
    "SD.mask = scaled",
    "v_div_fixup_f32": "D.f32 = division_fixup(S0.f32, S1.f32, S2.f32)",
    "v_div_fmas_f32": "D.f32 = division_fmas(S0.f32, S1.f32, S2.f32, S3.mask)",
}

_TRANSCENDENTAL = {
    "v_exp_f32": "D.f32 = flush_unary(exp2_f32, S0.f32)",
    "v_log_f32": "D.f32 = flush_unary(log2_f32, S0.f32)",
    "v_rcp_f32 v_rcp_iflag_f32": "D.f32 = reciprocal(S0.f32)",
    "v_rsq_f32": "D.f32 = reciprocal_root(S0.f32)",
    "v_sqrt_f32": "D.f32 = flush_unary(sqrtf, S0.f32)",
    "v_sin_f32": "D.f32 = turns_sin(S0.f32)",
    "v_cos_f32": "D.f32 = turns_cos(S0.f32)",
}

_HALF = {
    **_of_type(_BOTH, "f16"),
    "v_fmac_f16": "D.f16 = fused_f16(S0.f16, S1.f16, D.f16)",
    "v_fmamk_f16 v_fmaak_f16": "D.f16 = fused_f16(S0.f16, S1.f16, S2.f16)",
    "v_frexp_mant_f16": "D.f16 = (float)frexp_mantissa(S0.f16)",
    "v_frexp_exp_i16_f16": "D.i16 = frexp_exponent(S0.f16)",
    "v_fract_f16": "float part = S0.f16 - floorf(S0.f16); D.f16 = part > 0x1.ffcp-1f ? 0x1.ffcp-1f : part",
    "v_ldexp_f16": "D.f16 = scale_by_power(S0.f16, S1.i16)",
}

# of 24 bits and more, enough for one rounding to 11
_TRANSCENDENTAL_HALF = {
    "v_exp_f16": "D.f16 = exp2_f32(S0.f16)",
    "v_log_f16": "D.f16 = log2_f32(S0.f16)",
    "v_rcp_f16": "D.f16 = 1.0f / S0.f16",
    "v_rsq_f16": "D.f16 = reciprocal_root(S0.f16)",
    "v_sqrt_f16": "D.f16 = sqrtf(S0.f16)",
    "v_sin_f16": "D.f16 = turns_sin(S0.f16)",
    "v_cos_f16": "D.f16 = turns_cos(S0.f16)",
}

_CONVERSIONS = {
    "v_cvt_f32_i32": "D.f32 = (float)S0.i32",
    "v_cvt_f32_u32": "D.f32 = (float)S0.u32",
    "v_cvt_i32_f32": "D.i32 = i32_of_f32(S0.f32)",
    "v_cvt_u32_f32": "D.u32 = u32_of_f32(S0.f32)",
    "v_cvt_f16_f32": "D.f16 = S0.f32",
    "v_cvt_f32_f16": "D.f32 = S0.f16",
    "v_cvt_f16_i16": "D.f16 = (float)S0.i16",
    "v_cvt_f16_u16": "D.f16 = (float)S0.u16",
    "v_cvt_i16_f16": "D.i16 = i16_saturated(i32_of_f32(S0.f16))",
    "v_cvt_u16_f16": "D.u16 = u32_of_f32(S0.f16)",
    "v_cvt_flr_i32_f32 v_cvt_floor_i32_f32": "D.i32 = i32_of_f32(floorf(S0.f32))",
    "v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32": "D.i32 = i32_of_f32(floorf(S0.f32 + 0.5f))",
    "v_sat_pk_u8_i16": "D.u16 = u8_saturated((i16)S0.u32) | u8_saturated((i32)S0.u32 >> 16) << 8",
    "v_cvt_f32_ubyte0": "D.f32 = (float)(S0.u32 & 255)",
    "v_cvt_f32_ubyte1": "D.f32 = (float)(S0.u32 >> 8 & 255)",
    "v_cvt_f32_ubyte2": "D.f32 = (float)(S0.u32 >> 16 & 255)",
    "v_cvt_f32_ubyte3": "D.f32 = (float)(S0.u32 >> 24)",
    "v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32": "D.u32 = f16_of_f32_rtz(S0.f32) | f16_of_f32_rtz(S1.f32) << "
    "16",
    "v_cvt_pk_f16_f32": "D.u32 = f16_of_f32(S0.f32) | f16_of_f32(S1.f32) << 16",
    "v_cvt_pk_bf16_f32": "D.u32 = bf16_of_f32(S0.f32) | bf16_of_f32(S1.f32) << 16",
    "v_cvt_pk_i16_f32": "D.u32 = ((u32)i16_saturated(i32_of_f32(S0.f32)) & 0xffff) | "
    "(u32)i16_saturated(i32_of_f32(S1.f32)) << 16",
    "v_cvt_pk_i16_i32": "D.u32 = ((u32)i16_saturated(S0.i32) & 0xffff) | (u32)i16_saturated(S1.i32) << 16",
    "v_cvt_pk_u16_f32": "D.u32 = u16_saturated(u32_of_f32(S0.f32)) | u16_saturated(u32_of_f32(S1.f32)) << 16",
    "v_cvt_pk_u16_u32": "D.u32 = u16_saturated(S0.u32) | u16_saturated(S1.u32) << 16",
    "v_pack_b32_f16": "D.u32 = S0.u16 | S1.u16 << 16",
}

# the low product is added first, then the high one, each with one rounding: the order is not published
_DOT = (
    "D.f32 = fmaf({f}(S0.u32 >> 16), {f}(S1.u32 >> 16), "
    "fmaf({f}(S0.u32 & 65535), {f}(S1.u32 & 65535), {sum}))"
)
_PRODUCTS_OF_PAIRS = {
    "v_dot2c_f32_f16 v_dot2acc_f32_f16": _DOT.format(f="f32_of_f16", sum="D.f32"),
    "v_dot2c_f32_bf16 v_dot2acc_f32_bf16": _DOT.format(f="f32_of_bf16", sum="D.f32"),
}
_NARROW = {"i16": 16, "i8": 8, "i4": 4}
_PRODUCTS_OF_INTEGERS = {
    f"v_dot{32 // bits}c_i32_{kind}": f"D.i32 = sum_i32(dot_integers(S0.u32, S1.u32, {bits}, 1, 1) + "
    "D.i32, 0)"
    for kind, bits in _NARROW.items()
}
_SUMS_OF_INTEGERS = {
    f"v_dot{32 // bits}_{t}32_{t}{bits}": f"D.{t}32 = sum_{t}32(dot_integers(S0.u32, S1.u32, {bits}, {sign}, "
    f"{sign}) + S2.{t}32, I->clamp)"
    for bits in _NARROW.values()
    for t, sign in (("i", 1), ("u", 0))
}
# neg_lo marks signed sources
_SUMS_OF_ANY_SIGN = {
    f"v_dot{32 // bits}_i32_iu{bits}": f"D.i32 = sum_i32(dot_integers(S0.u32, S1.u32, {bits}, I->neg_lo & 1, "
    f"I->neg_lo & 2) + S2.i32, I->clamp)"
    for bits in (8, 4)
}
_SUM_OF_PAIRS = {
    "v_dot2_f32_f16": _DOT.format(f="f32_of_f16", sum="S2.f32"),
    "v_dot2_f32_bf16": _DOT.format(f="f32_of_bf16", sum="S2.f32"),
}
# every step is rounded to the type of the result: halves to the nearest, bfloat16 toward zero
_NARROW_SUM_OF_PAIRS = {
    "v_dot2_f16_f16": "float first = f32_of_f16(f16_of_f32(fused_f16(f32_of_f16(S0.u32 & 65535), "
    "f32_of_f16(S1.u32 & 65535), S2.f16))); "
    "D.f16 = fused_f16(f32_of_f16(S0.u32 >> 16), f32_of_f16(S1.u32 >> 16), first)",
    "v_dot2_bf16_bf16": "float first = bf16_truncated(fmaf(f32_of_bf16(S0.u32 & 65535), "
    "f32_of_bf16(S1.u32 & 65535), f32_of_bf16(S2.u16))); "
    "D.u16 = bits_f32(bf16_truncated(fmaf(f32_of_bf16(S0.u32 >> 16), f32_of_bf16(S1.u32 >> 16), first))) "
    ">> 16",
}
_SHIFTED_BYTES = {
    f"v_ashr_pk_{t}_i32": f"D.u16 = {t}_saturated(S0.i32 >> (S2.u32 & 31)) | "
    f"{t}_saturated(S1.i32 >> (S2.u32 & 31)) << 8"
    for t in ("i8", "u8")
}

_PACKED_FLOATS = ("add", "mul", *_EXTREMES, "min_num", "max_num", "maximum", "minimum")
_PACKED = {
    **_of_type({name: _BOTH[name] for name in _PACKED_FLOATS}, "f16", "v_pk_"),
    **_of_type({name: _THREE[name] for name in ("maximum3", "minimum3")}, "f16", "v_pk_"),
    **{
        f"v_pk_{name}_{t}": f"D.{t} = S0.{t} {sign} S1.{t} ? S0.{t} : S1.{t}"
        for name, sign in _EXTREMES.items()
        for t in ("i16", "u16")
    },
    "v_pk_fma_f16": "D.f16 = fused_f16(S0.f16, S1.f16, S2.f16)",
    "v_pk_add_u16": "D.u16 = S0.u16 + S1.u16",
    "v_pk_add_i16": "D.u16 = S0.u16 + S1.u16",
    "v_pk_sub_i16": "D.u16 = S0.u16 - S1.u16",
    "v_pk_sub_u16": "D.u16 = I->clamp && S0.u16 < S1.u16 ? 0 : S0.u16 - S1.u16",
    "v_pk_ashrrev_i16": "D.i16 = S1.i16 >> (S0.i16 & 15)",
    "v_pk_mad_u16 v_pk_mad_i16": "D.u16 = S0.u16 * S1.u16 + S2.u16",
    "v_pk_mul_lo_u16": "D.u16 = S0.u16 * S1.u16",
    "v_pk_lshlrev_b16": "D.u16 = S1.u16 << (S0.u16 & 15)",
    "v_pk_lshrrev_b16": "D.u16 = S1.u16 >> (S0.u16 & 15)",
    "v_pk_add_f32": "D.f32 = S0.f32 + S1.f32",
    "v_pk_mul_f32": "D.f32 = S0.f32 * S1.f32",
    "v_pk_fma_f32": "D.f32 = fmaf(S0.f32, S1.f32, S2.f32)",
}

_INTEGER = {
    name: f"S0.{{t}} {sign} S1.{{t}}"
    for name, sign in (("lt", "<"), ("eq", "=="), ("le", "<="), ("gt", ">"), ("ge", ">="), ("ne", "!="))
}


def _comparisons(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}_{name}_{t}": "SD.mask = " + relation.format(t=t)
        for relations, types in ((_INTEGER, "i32 u32 i64 u64 i16 u16"), (FLOAT_RELATIONS, "f32 f16 f64"))
        for t in types.split()
        for name, relation in relations.items()
    }


def _classes(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}_class_f16": "SD.mask = (class_of_f16(S0.u16) & S1.u16) != 0",
        f"{prefix}_class_f32": "SD.mask = (class_of(S0.f32) & S1.u32) != 0",
        f"{prefix}_class_f64": "SD.mask = (class_of_f64(S0.f64) & S1.u32) != 0",
    }


# instructions with op_sel alone, which keep the other half on every arch (LLVM: zeroesHigh16BitsOfDest)
_KEEPING = {
    **_of_type(_THREE, "f16"),
    "v_fma_f16": "D.f16 = fused_f16(S0.f16, S1.f16, S2.f16)",
    "v_div_fixup_f16": "D.f16 = division_fixup_f16(S0.f16, S1.f16, S2.f16)",
    "v_add_i16 v_add_nc_i16": "D.u16 = S0.u16 + S1.u16",
    "v_sub_i16 v_sub_nc_i16": "D.u16 = S0.u16 - S1.u16",
    "v_mad_u16 v_mad_i16": "D.u16 = S0.u16 * S1.u16 + S2.u16",
    **{
        f"v_{name}_{t}": f"D.{t} = {name}_{t[0]}32(S0.{t}, S1.{t}, S2.{t})"
        for t in ("i16", "u16")
        for name in ("min3", "max3", "med3")
    },
}
_TRUTH_TABLE_16 = {"v_bitop3_b16": "D.u16 = bits_of_table(S0.u16, S1.u16, S2.u16, I->immediate)"}

_MIX = "fmaf(S0.mix, S1.mix, S2.mix)"


def _any_third(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries whose third source, unlike the others, may be a constant."""
    return {
        name: replace(
            entry, slots=tuple(replace(s, kind="any") if s.name == "S2" else s for s in entry.slots)
        )
        for name, entry in entries.items()
    }


TABLE = merged(
    table("vector", _ADDITION, _PRODUCTS, _BITS, _ORDER),
    table(
        "vector", {"v_perm_b32": "D.u32 = permute_bytes(S0.u32, S1.u32, S2.u32)"}, rows="permute_rows_alike"
    ),
    table("vector", _SELECTION, implied={"S2": "vcc"}),
    table("vector", _MOVES, _WORDS),
    # the guides differ on what a constant is to a pair of halves
    table("vector", _PRODUCTS_OF_PAIRS, sources="v", modifiers=frozenset(), approximated=SUM_ORDER),
    table("vector", _PRODUCTS_OF_INTEGERS, sources="v", modifiers=frozenset()),
    _any_third(table("vector", _SUMS_OF_INTEGERS, sources="v", modifiers=frozenset({"clamp"}))),
    _any_third(table("vector", _SUMS_OF_ANY_SIGN, sources="v", modifiers=frozenset({"clamp", "neg_lo"}))),
    table(
        "vector",
        _NARROW_SUM_OF_PAIRS,
        sources="v",
        modifiers=frozenset({"op_sel"}),
        keeps_half=True,
        approximated=SUM_ORDER,
    ),
    table("vector", _SHIFTED_BYTES, modifiers=frozenset({"op_sel"}), keeps_half=True, archs=("gfx95",)),
    table("vector", {"v_cvt_f32_bf16": "D.f32 = f32_of_bf16(S0.u16)"}, archs=("gfx95",)),
    _any_third(table("vector", _SUM_OF_PAIRS, sources="v", modifiers=frozenset(), approximated=SUM_ORDER)),
    table("vector", _SINGLE),
    table("vector", _DIVISION, implied={"S3": "vcc"}),
    table("vector", _TRANSCENDENTAL, _TRANSCENDENTAL_HALF, approximated=LAST_PLACE),
    table("vector", _HALF),
    table("vector", _KEEPING, keeps_half=True),
    table("vector", _TRUTH_TABLE_16, keeps_half=True, modifiers=frozenset({"bitop3", "op_sel"})),
    table("vector", {"v_fma_mix_f32": f"D.f32 = {_MIX}"}),
    # the sum is rounded to float32 first: LLVM selects these for a conversion of a float32 result
    table("vector", {"v_fma_mixlo_f16": f"D.f16 = {_MIX}"}, half=0, keeps_half=True),
    table("vector", {"v_fma_mixhi_f16": f"D.f16 = {_MIX}"}, half=1, keeps_half=True),
    doubles.TABLE,
    small_floats.TABLE,
    table("vector", _CONVERSIONS),
    table("vector", _comparisons("v_cmp")),
    table("vector", _comparisons("v_cmpx"), implied={"SD": "exec"}),
    table("vector", _classes("v_cmp")),
    table("vector", _classes("v_cmpx"), implied={"SD": "exec"}),
    table("packed", _PACKED),
)
