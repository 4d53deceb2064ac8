"""Packed arithmetic: statements executed for the low and the high half of each lane's operands.

op_sel and op_sel_hi select the half of a source that each of the two reads, neg_lo and neg_hi negate it.
Halves of float32 operands are registers.
"""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import table

TABLE = table(
    "packed",
    {
        "v_pk_add_f16": "D.f16 = S0.f16 + S1.f16",
        "v_pk_mul_f16": "D.f16 = S0.f16 * S1.f16",
        "v_pk_fma_f16": "D.f16 = fused_f16(S0.f16, S1.f16, S2.f16)",
        "v_pk_max_f16 v_pk_max_num_f16": "D.f16 = max_f32(S0.f16, S1.f16)",
        "v_pk_min_f16 v_pk_min_num_f16": "D.f16 = min_f32(S0.f16, S1.f16)",
        "v_pk_add_u16": "D.u16 = S0.u16 + S1.u16",
        "v_pk_sub_i16": "D.u16 = S0.u16 - S1.u16",
        "v_pk_mul_lo_u16": "D.u16 = S0.u16 * S1.u16",
        "v_pk_lshlrev_b16": "D.u16 = S1.u16 << (S0.u16 & 15)",
        "v_pk_lshrrev_b16": "D.u16 = S1.u16 >> (S0.u16 & 15)",
        "v_pk_add_f32": "D.f32 = S0.f32 + S1.f32",
        "v_pk_mul_f32": "D.f32 = S0.f32 * S1.f32",
        "v_pk_fma_f32": "D.f32 = fmaf(S0.f32, S1.f32, S2.f32)",
    },
)
