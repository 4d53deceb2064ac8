"""Vector floating point, lane by lane.

Rounding is to nearest even and denormal numbers are kept, as in every accepted kernel descriptor; the transcendental unit
flushes them. Vector halves are computed in float32 and rounded once.
"""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import merged, table

_SINGLE = table(
    "vector",
    {
        "v_add_f32": "D.f32 = S0.f32 + S1.f32",
        "v_sub_f32": "D.f32 = S0.f32 - S1.f32",
        "v_subrev_f32": "D.f32 = S1.f32 - S0.f32",
        "v_mul_f32": "D.f32 = S0.f32 * S1.f32",
        "v_fma_f32 v_fmamk_f32 v_fmaak_f32": "D.f32 = fmaf(S0.f32, S1.f32, S2.f32)",
        "v_fmac_f32": "D.f32 = fmaf(S0.f32, S1.f32, D.f32)",
        "v_max_f32 v_max_num_f32": "D.f32 = max_f32(S0.f32, S1.f32)",
        "v_min_f32 v_min_num_f32": "D.f32 = min_f32(S0.f32, S1.f32)",
        "v_max3_f32 v_max3_num_f32": "D.f32 = max_f32(max_f32(S0.f32, S1.f32), S2.f32)",
        "v_min3_f32 v_min3_num_f32": "D.f32 = min_f32(min_f32(S0.f32, S1.f32), S2.f32)",
        "v_trunc_f32": "D.f32 = truncf(S0.f32)",
        "v_floor_f32": "D.f32 = floorf(S0.f32)",
        "v_ceil_f32": "D.f32 = ceilf(S0.f32)",
        "v_rndne_f32": "D.f32 = rintf(S0.f32)",
        "v_fract_f32": "D.f32 = fraction(S0.f32)",
        "v_ldexp_f32": "D.f32 = scale_by_power(S0.f32, S1.i32)",
    },
)

_DIVISION = table(
    "vector",
    {
        "v_div_scale_f32": "u32 scaled; D.f32 = division_scale(S0.f32, S1.f32, S2.f32, &scaled); SD.mask = scaled",
        "v_div_fixup_f32": "D.f32 = division_fixup(S0.f32, S1.f32, S2.f32)",
        "v_div_fmas_f32": "D.f32 = division_fmas(S0.f32, S1.f32, S2.f32, S3.mask)",
    },
    implied={"S3": "vcc"},
)

_TRANSCENDENTAL = table(
    "vector",
    {
        "v_exp_f32": "D.f32 = flush_unary(exp2_f32, S0.f32)",
        "v_log_f32": "D.f32 = flush_unary(log2_f32, S0.f32)",
        "v_rcp_f32 v_rcp_iflag_f32": "D.f32 = reciprocal(S0.f32)",
        "v_rsq_f32": "D.f32 = reciprocal_root(S0.f32)",
        "v_sqrt_f32": "D.f32 = flush_unary(sqrtf, S0.f32)",
        "v_sin_f32": "D.f32 = turns_sin(S0.f32)",
        "v_cos_f32": "D.f32 = turns_cos(S0.f32)",
    },
)

_HALF = table(
    "vector",
    {
        "v_add_f16": "D.f16 = S0.f16 + S1.f16",
        "v_sub_f16": "D.f16 = S0.f16 - S1.f16",
        "v_subrev_f16": "D.f16 = S1.f16 - S0.f16",
        "v_mul_f16": "D.f16 = S0.f16 * S1.f16",
        "v_fmac_f16": "D.f16 = fused_f16(S0.f16, S1.f16, D.f16)",
        "v_max_f16 v_max_num_f16": "D.f16 = max_f32(S0.f16, S1.f16)",
        "v_min_f16 v_min_num_f16": "D.f16 = min_f32(S0.f16, S1.f16)",
    },
)

_FUSED_HALF = table("vector", {"v_fma_f16": "D.f16 = fused_f16(S0.f16, S1.f16, S2.f16)"}, keeps_half=True)
_MIX = "fmaf(S0.mix, S1.mix, S2.mix)"
_MIXED = merged(
    table("vector", {"v_fma_mix_f32": f"D.f32 = {_MIX}"}),
    # the sum is rounded to float32 first: LLVM selects these for a conversion of a float32 result
    table("vector", {"v_fma_mixlo_f16": f"D.f16 = {_MIX}"}, half=0, keeps_half=True),
    table("vector", {"v_fma_mixhi_f16": f"D.f16 = {_MIX}"}, half=1, keeps_half=True),
)

_CONVERSIONS = table(
    "vector",
    {
        "v_cvt_f32_i32": "D.f32 = (float)S0.i32",
        "v_cvt_f32_u32": "D.f32 = (float)S0.u32",
        "v_cvt_i32_f32": "D.i32 = i32_of_f32(S0.f32)",
        "v_cvt_u32_f32": "D.u32 = u32_of_f32(S0.f32)",
        "v_cvt_f16_f32": "D.f16 = S0.f32",
        "v_cvt_f32_f16": "D.f32 = S0.f16",
        "v_cvt_f32_ubyte0": "D.f32 = (float)(S0.u32 & 255)",
        "v_cvt_f32_ubyte1": "D.f32 = (float)(S0.u32 >> 8 & 255)",
        "v_cvt_f32_ubyte2": "D.f32 = (float)(S0.u32 >> 16 & 255)",
        "v_cvt_f32_ubyte3": "D.f32 = (float)(S0.u32 >> 24)",
        "v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32": "D.u32 = f16_of_f32_rtz(S0.f32) | f16_of_f32_rtz(S1.f32) << 16",
        "v_cvt_pk_f16_f32": "D.u32 = f16_of_f32(S0.f32) | f16_of_f32(S1.f32) << 16",
        "v_cvt_pk_bf16_f32": "D.u32 = bf16_of_f32(S0.f32) | bf16_of_f32(S1.f32) << 16",
        "v_pack_b32_f16": "D.u32 = S0.u16 | S1.u16 << 16",
    },
)

_DOUBLE = table(
    "vector",
    {
        "v_add_f64": "D.f64 = S0.f64 + S1.f64",
        "v_mul_f64": "D.f64 = S0.f64 * S1.f64",
        "v_fma_f64": "D.f64 = fma(S0.f64, S1.f64, S2.f64)",
    },
)


_LOW = "fmaf({f}(S0.u32 & 65535), {f}(S1.u32 & 65535), D.f32)"
_PRODUCTS_OF_PAIRS = table(
    "vector",
    {
        # the low product is added first, then the high one, each with one rounding: the order is not published
        f"v_dot2c_f32_{kind}": f"D.f32 = fmaf({f}(S0.u32 >> 16), {f}(S1.u32 >> 16), {_LOW.format(f=f)})"
        for kind, f in (("f16", "f32_of_f16"), ("bf16", "f32_of_bf16"))
    },
    # the guides differ on what a constant is to a pair of halves
    sources="v",
    modifiers=frozenset(),
)

TABLE = merged(
    _PRODUCTS_OF_PAIRS, _SINGLE, _DIVISION, _TRANSCENDENTAL, _HALF, _FUSED_HALF, _MIXED, _CONVERSIONS, _DOUBLE
)
