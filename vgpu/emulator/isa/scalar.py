"""Scalar arithmetic, moves and comparisons. SCC, VCC, EXEC and PC are the wave's own."""

from collections.abc import Mapping

from vgpu.emulator.isa.entry import FLOAT_OUT, LAST_PLACE, merged, table

_ADDITION = {
    "s_add_u32 s_add_co_u32": "D.u32 = S0.u32 + S1.u32; SCC = D.u32 < S0.u32",
    "s_sub_u32 s_sub_co_u32": "D.u32 = S0.u32 - S1.u32; SCC = S1.u32 > S0.u32",
    "s_addc_u32 s_add_co_ci_u32": "u64 t = (u64)S0.u32 + S1.u32 + SCC; D.u32 = (u32)t; SCC = (u32)(t >> 32)",
    "s_subb_u32 s_sub_co_ci_u32": "u64 t = (u64)S0.u32 - S1.u32 - SCC; D.u32 = (u32)t; "
    "SCC = (u32)(t >> 32) & 1",
    "s_add_i32 s_add_co_i32": "D.u32 = S0.u32 + S1.u32; SCC = (~(S0.u32 ^ S1.u32) & (S0.u32 ^ D.u32)) >> 31",
    "s_sub_i32 s_sub_co_i32": "D.u32 = S0.u32 - S1.u32; SCC = ((S0.u32 ^ S1.u32) & (S0.u32 ^ D.u32)) >> 31",
    "s_add_nc_u64 s_add_u64": "D.u64 = S0.u64 + S1.u64",
    "s_sub_nc_u64 s_sub_u64": "D.u64 = S0.u64 - S1.u64",
    **{
        f"s_lshl{n}_add_u32": f"u64 t = ((u64)S0.u32 << {n}) + S1.u32; D.u32 = (u32)t; SCC = t >> 32 != 0"
        for n in (1, 2, 3, 4)
    },
    "s_mul_i32": "D.u32 = S0.u32 * S1.u32",
    "s_mul_hi_u32": "D.u32 = (u32)((u64)S0.u32 * S1.u32 >> 32)",
    "s_mul_hi_i32": "D.i32 = (i32)((i64)S0.i32 * S1.i32 >> 32)",
    "s_mul_u64": "D.u64 = S0.u64 * S1.u64",
    **{
        f"s_{name}_{t}": f"SCC = S0.{t} {sign} S1.{t}; D.{t} = SCC ? S0.{t} : S1.{t}"
        for name, sign in (("min", "<"), ("max", ">="))
        for t in ("i32", "u32")
    },
    "s_abs_i32": "D.u32 = S0.u32 >> 31 ? 0 - S0.u32 : S0.u32; SCC = D.u32 != 0",
    "s_absdiff_i32": "D.u32 = S0.u32 - S1.u32; D.u32 = D.u32 >> 31 ? 0 - D.u32 : D.u32; SCC = D.u32 != 0",
}

_MOVES = {
    "s_mov_b32": "D.u32 = S0.u32",
    "s_mov_b64": "D.u64 = S0.u64",
    "s_cmov_b32": "D.u32 = SCC ? S0.u32 : D.u32",
    "s_cmov_b64": "D.u64 = SCC ? S0.u64 : D.u64",
    "s_cselect_b32": "D.u32 = SCC ? S0.u32 : S1.u32",
    "s_cselect_b64": "D.u64 = SCC ? S0.u64 : S1.u64",
    "s_not_b32": "D.u32 = ~S0.u32; SCC = D.u32 != 0",
    "s_not_b64": "D.u64 = ~S0.u64; SCC = D.u64 != 0",
    "s_brev_b32": "D.u32 = reverse_bits(S0.u32)",
    "s_brev_b64": "D.u64 = pair(reverse_bits((u32)(S0.u64 >> 32)), reverse_bits((u32)S0.u64))",
    "s_sext_i32_i8": "D.i32 = (i8)S0.u32",
    "s_sext_i32_i16": "D.i32 = (i16)S0.u32",
    "s_pack_ll_b32_b16": "D.u32 = (S0.u32 & 0xffff) | S1.u32 << 16",
    "s_pack_lh_b32_b16": "D.u32 = (S0.u32 & 0xffff) | (S1.u32 & 0xffff0000)",
    "s_pack_hl_b32_b16": "D.u32 = S0.u32 >> 16 | S1.u32 << 16",
    "s_pack_hh_b32_b16": "D.u32 = S0.u32 >> 16 | (S1.u32 & 0xffff0000)",
    "s_bcnt1_i32_b32": "D.u32 = (u32)__builtin_popcount(S0.u32); SCC = D.u32 != 0",
    "s_bcnt1_i32_b64": "D.u32 = (u32)__builtin_popcountll(S0.u64); SCC = D.u32 != 0",
    "s_bcnt0_i32_b32": "D.u32 = (u32)__builtin_popcount(~S0.u32); SCC = D.u32 != 0",
    "s_bcnt0_i32_b64": "D.u32 = (u32)__builtin_popcountll(~S0.u64); SCC = D.u32 != 0",
    "s_ff0_i32_b32": "D.i32 = ~S0.u32 ? __builtin_ctz(~S0.u32) : -1",
    "s_ff0_i32_b64": "D.i32 = ~S0.u64 ? __builtin_ctzll(~S0.u64) : -1",
    "s_ff1_i32_b32 s_ctz_i32_b32": "D.i32 = S0.u32 ? __builtin_ctz(S0.u32) : -1",
    "s_ff1_i32_b64 s_ctz_i32_b64": "D.i32 = S0.u64 ? __builtin_ctzll(S0.u64) : -1",
    "s_flbit_i32_b32 s_clz_i32_u32": "D.i32 = S0.u32 ? __builtin_clz(S0.u32) : -1",
    "s_flbit_i32 s_cls_i32": "u32 x = S0.u32 ^ (u32)((i32)S0.u32 >> 31); D.i32 = x ? __builtin_clz(x) : -1",
    "s_flbit_i32_b64 s_clz_i32_u64": "D.i32 = S0.u64 ? __builtin_clzll(S0.u64) : -1",
    "s_flbit_i32_i64 s_cls_i32_i64": "u64 x = S0.u64 ^ (u64)((i64)S0.u64 >> 63); "
    "D.i32 = x ? __builtin_clzll(x) : -1",
}

_BITWISE = {
    "and": "{a} & {b}",
    "or": "{a} | {b}",
    "xor": "{a} ^ {b}",
    "andn2": "{a} & ~{b}",
    "and_not1": "{a} & ~{b}",
    "orn2": "{a} | ~{b}",
    "or_not1": "{a} | ~{b}",
    "nand": "~({a} & {b})",
    "nor": "~({a} | {b})",
    "xnor": "~({a} ^ {b})",
    "andn1": "~{a} & {b}",
    "and_not0": "~{a} & {b}",
    "orn1": "~{a} | {b}",
    "or_not0": "~{a} | {b}",
}
_OF_EXEC = {"andn1", "and_not0", "orn1", "or_not0"}
_WRITE_EXEC = ("andn1", "and_not0", "andn2", "and_not1")
_WIDTHS = (("b32", "u32"), ("b64", "u64"))

_LOGIC = {
    f"s_{name}_{bits}": f"D.{t} = {code.format(a=f'S0.{t}', b=f'S1.{t}')}; SCC = D.{t} != 0"
    for name, code in _BITWISE.items()
    if name not in _OF_EXEC
    for bits, t in _WIDTHS
}

_EXEC = {
    f"s_{name}_saveexec_{bits}": f"u64 before = EXEC; "
    f"EXEC = ({t})({_BITWISE[name].format(a=f'S0.{t}', b='before')}); "
    f"D.{t} = ({t})before; SCC = EXEC != 0"
    for name in _BITWISE
    for bits, t in _WIDTHS
} | {
    f"s_{name}_wrexec_{bits}": f"EXEC = ({t})({_BITWISE[name].format(a=f'S0.{t}', b='EXEC')}); "
    f"D.{t} = ({t})EXEC; SCC = EXEC != 0"
    for name in _WRITE_EXEC
    for bits, t in _WIDTHS
}

_SHIFTS = {
    "s_lshl_b32": "D.u32 = S0.u32 << (S1.u32 & 31); SCC = D.u32 != 0",
    "s_lshr_b32": "D.u32 = S0.u32 >> (S1.u32 & 31); SCC = D.u32 != 0",
    "s_ashr_i32": "D.i32 = S0.i32 >> (S1.u32 & 31); SCC = D.i32 != 0",
    "s_lshl_b64": "D.u64 = S0.u64 << (S1.u32 & 63); SCC = D.u64 != 0",
    "s_lshr_b64": "D.u64 = S0.u64 >> (S1.u32 & 63); SCC = D.u64 != 0",
    "s_ashr_i64": "D.i64 = S0.i64 >> (S1.u32 & 63); SCC = D.i64 != 0",
    "s_bfe_u32": "D.u32 = sfield_u32(S0.u32, S1.u32, S1.u32 >> 16 & 127); SCC = D.u32 != 0",
    "s_bfe_i32": "D.i32 = sfield_i32(S0.i32, S1.u32, S1.u32 >> 16 & 127); SCC = D.i32 != 0",
    "s_bfe_u64": "D.u64 = sfield_u64(S0.u64, S1.u32, S1.u32 >> 16 & 127); SCC = D.u64 != 0",
    "s_bfe_i64": "D.i64 = sfield_i64(S0.i64, S1.u32, S1.u32 >> 16 & 127); SCC = D.i64 != 0",
    "s_bfm_b64": "D.u64 = ((1ull << (S0.u32 & 63)) - 1) << (S1.u32 & 63)",
    "s_bitset0_b64": "D.u64 = D.u64 & ~(1ull << (S0.u32 & 63))",
    "s_bitset1_b64": "D.u64 = D.u64 | 1ull << (S0.u32 & 63)",
    "s_bitcmp0_b64": "SCC = !(S0.u64 >> (S1.u32 & 63) & 1)",
    "s_bitcmp1_b64": "SCC = S0.u64 >> (S1.u32 & 63) & 1",
    "s_bfm_b32": "D.u32 = ((1u << (S0.u32 & 31)) - 1) << (S1.u32 & 31)",
    "s_bitset0_b32": "D.u32 = D.u32 & ~(1u << (S0.u32 & 31))",
    "s_bitset1_b32": "D.u32 = D.u32 | 1u << (S0.u32 & 31)",
    "s_bitcmp0_b32": "SCC = !(S0.u32 >> (S1.u32 & 31) & 1)",
    "s_bitcmp1_b32": "SCC = S0.u32 >> (S1.u32 & 31) & 1",
}

_RELATIONS = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}

_COMPARISONS = {
    f"s_cmp_{name}_{t}": f"SCC = S0.{t} {operator} S1.{t}"
    for name, operator in _RELATIONS.items()
    for t in ("i32", "u32")
} | {"s_cmp_eq_u64": "SCC = S0.u64 == S1.u64", "s_cmp_lg_u64": "SCC = S0.u64 != S1.u64"}

_SIGNED_IMMEDIATES = {
    "s_movk_i32": "D.u32 = S0.u32",
    "s_cmovk_i32": "D.u32 = SCC ? S0.u32 : D.u32",
    "s_addk_i32 s_addk_co_i32": "u32 a = D.u32; D.u32 = a + S0.u32; "
    "SCC = (~(a ^ S0.u32) & (a ^ D.u32)) >> 31",
    "s_mulk_i32": "D.u32 = D.u32 * S0.u32",
    **{f"s_cmpk_{name}_i32": f"SCC = S0.i32 {operator} S1.i32" for name, operator in _RELATIONS.items()},
}

_UNSIGNED_IMMEDIATES = {
    f"s_cmpk_{name}_u32": f"SCC = S0.u32 {operator} S1.u32" for name, operator in _RELATIONS.items()
}

_ORDERED = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ge": ">="}
FLOAT_RELATIONS = {
    **{name: f"S0.{{t}} {sign} S1.{{t}}" for name, sign in _ORDERED.items()},
    **{f"n{name}": f"!(S0.{{t}} {sign} S1.{{t}})" for name, sign in _ORDERED.items()},
    "lg": "S0.{t} < S1.{t} || S0.{t} > S1.{t}",
    "nlg": "!(S0.{t} < S1.{t} || S0.{t} > S1.{t})",
    "o": "S0.{t} == S0.{t} && S1.{t} == S1.{t}",
    "u": "S0.{t} != S0.{t} || S1.{t} != S1.{t}",
}
"""Comparisons of floats by name: `n` is the opposite, true of a NaN."""

_ARITHMETIC = {
    "add": "D.{t} = S0.{t} + S1.{t}",
    "sub": "D.{t} = S0.{t} - S1.{t}",
    "mul": "D.{t} = S0.{t} * S1.{t}",
    "trunc": "D.{t} = truncf(S0.{t})",
    "floor": "D.{t} = floorf(S0.{t})",
    "ceil": "D.{t} = ceilf(S0.{t})",
    "rndne": "D.{t} = rintf(S0.{t})",
    **{f"cmp_{name}": f"SCC = {relation}" for name, relation in FLOAT_RELATIONS.items()},
}
_EXTREMES = {name: f"D.{{t}} = {name}_f32(S0.{{t}}, S1.{{t}})" for name in ("min", "max")}
_GFX12_EXTREMES = {
    name: f"D.{{t}} = {name}_f32(S0.{{t}}, S1.{{t}})" for name in ("min_num", "max_num", "minimum", "maximum")
}
_FUSED = {
    "s_fmac_f32": "D.f32 = fmaf(S0.f32, S1.f32, D.f32)",
    "s_fmac_f16": "D.f16 = fused_f16(S0.f16, S1.f16, D.f16)",
    "s_fmamk_f32 s_fmaak_f32": "D.f32 = fmaf(S0.f32, S1.f32, S2.f32)",
}
_CONVERSIONS = {
    "s_cvt_f32_i32": "D.f32 = (float)S0.i32",
    "s_cvt_f32_u32": "D.f32 = (float)S0.u32",
    "s_cvt_i32_f32": "D.i32 = i32_of_f32(S0.f32)",
    "s_cvt_u32_f32": "D.u32 = u32_of_f32(S0.f32)",
    "s_cvt_f16_f32": "D.f16 = S0.f32",
    "s_cvt_f32_f16": "D.f32 = S0.f16",
    "s_cvt_hi_f32_f16": "D.f32 = f32_of_f16(S0.u32 >> 16)",
    "s_cvt_pk_rtz_f16_f32": "D.u32 = f16_of_f32_rtz(S0.f32) | f16_of_f32_rtz(S1.f32) << 16",
}
# gfx12 names the transcendental unit's operations on scalars v_s_
_TRANSCENDENTAL = {
    "v_s_exp_f32": "D.f32 = flush_unary(exp2_f32, S0.f32)",
    "v_s_log_f32": "D.f32 = flush_unary(log2_f32, S0.f32)",
    "v_s_rcp_f32": "D.f32 = reciprocal(S0.f32)",
    "v_s_rsq_f32": "D.f32 = reciprocal_root(S0.f32)",
    "v_s_sqrt_f32": "D.f32 = flush_unary(sqrtf, S0.f32)",
    "v_s_exp_f16": "D.f16 = exp2_f32(S0.f16)",
    "v_s_log_f16": "D.f16 = log2_f32(S0.f16)",
    "v_s_rcp_f16": "D.f16 = 1.0f / S0.f16",
    "v_s_rsq_f16": "D.f16 = reciprocal_root(S0.f16)",
    "v_s_sqrt_f16": "D.f16 = sqrtf(S0.f16)",
}


def _of_both(codes: Mapping[str, str]) -> dict[str, str]:
    """Of float32 and, computed in it, of halves, which are the low 16 bits and leave zeros above."""
    return {f"s_{name}_{t}": code.format(t=t) for name, code in codes.items() for t in ("f32", "f16")}


_SCALAR_FLOATS = ("gfx115", "gfx12")
"""Archs whose scalar unit has floats."""

TABLE = merged(
    table("scalar", _ADDITION, _MOVES, _LOGIC, _SHIFTS, _COMPARISONS),
    table("scalar", _SIGNED_IMMEDIATES, immediate="i16"),
    table("scalar", _UNSIGNED_IMMEDIATES, immediate="u16"),
    table("scalar", _EXEC),
    table("scalar", _of_both(_ARITHMETIC), _FUSED, _CONVERSIONS, archs=_SCALAR_FLOATS),
    table("scalar", _of_both(_EXTREMES), archs=("gfx115",)),
    table("scalar", _of_both(_GFX12_EXTREMES), archs=("gfx12",)),
    table("scalar", _TRANSCENDENTAL, archs=("gfx12",), modifiers=FLOAT_OUT, approximated=LAST_PLACE),
)
