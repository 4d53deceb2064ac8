"""Vector instructions on doubles, and conversions to and from them."""

from vgpu.emulator.isa.entry import LAST_PLACE, merged, table

_ARITHMETIC = {
    "v_add_f64": "D.f64 = S0.f64 + S1.f64",
    "v_mul_f64": "D.f64 = S0.f64 * S1.f64",
    "v_fma_f64": "D.f64 = fma(S0.f64, S1.f64, S2.f64)",
    "v_fmac_f64": "D.f64 = fma(S0.f64, S1.f64, D.f64)",
    "v_max_f64": "D.f64 = max_f64(S0.f64, S1.f64)",
    "v_min_f64": "D.f64 = min_f64(S0.f64, S1.f64)",
    "v_max_num_f64": "D.f64 = max_num_f64(S0.f64, S1.f64)",
    "v_min_num_f64": "D.f64 = min_num_f64(S0.f64, S1.f64)",
    "v_maximum_f64": "D.f64 = maximum_f64(S0.f64, S1.f64)",
    "v_minimum_f64": "D.f64 = minimum_f64(S0.f64, S1.f64)",
    "v_trunc_f64": "D.f64 = trunc(S0.f64)",
    "v_floor_f64": "D.f64 = floor(S0.f64)",
    "v_ceil_f64": "D.f64 = ceil(S0.f64)",
    "v_rndne_f64": "D.f64 = rint(S0.f64)",
    "v_fract_f64": "D.f64 = fraction_f64(S0.f64)",
    "v_ldexp_f64": "D.f64 = ldexp(S0.f64, S1.i32)",
    "v_frexp_mant_f64": "D.f64 = frexp_mantissa(S0.f64)",
    "v_frexp_exp_i32_f64": "D.i32 = frexp_exponent(S0.f64)",
    "v_trig_preop_f64": "D.f64 = two_over_pi_part(S0.f64, S1.u32)",
}

_ROOTS = {
    "v_rcp_f64": "D.f64 = 1.0 / S0.f64",
    "v_rsq_f64": "D.f64 = 1.0 / sqrt(S0.f64)",
    "v_sqrt_f64": "D.f64 = sqrt(S0.f64)",
}

_DIVISION = {
    "v_div_scale_f64": "u32 scaled; D.f64 = division_scale_f64(S0.f64, S1.f64, S2.f64, &scaled); "
    "SD.mask = scaled",
    "v_div_fixup_f64": "D.f64 = division_fixup_f64(S0.f64, S1.f64, S2.f64)",
}

_CONVERSIONS = {
    "v_cvt_f64_f32": "D.f64 = S0.f32",
    "v_cvt_f32_f64": "D.f32 = (float)S0.f64",
    "v_cvt_f64_i32": "D.f64 = S0.i32",
    "v_cvt_f64_u32": "D.f64 = S0.u32",
    "v_cvt_i32_f64": "D.i32 = i32_of_f64(S0.f64)",
    "v_cvt_u32_f64": "D.u32 = u32_of_f64(S0.f64)",
}

_FUSED = {"v_div_fmas_f64": "D.f64 = division_fmas_f64(S0.f64, S1.f64, S2.f64, S3.mask)"}

TABLE = merged(
    table("vector", _ARITHMETIC, _DIVISION, _CONVERSIONS),
    table("vector", _ROOTS, approximated=LAST_PLACE),
    table("vector", _FUSED, implied={"S3": "vcc"}),
)
