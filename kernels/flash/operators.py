"""The two attention operators: every value that the public C++ interface conveys, by name, whether or not a kernel uses it yet.

Shapes, in elements: Q, Out, DO, DQ (batch, num_head_q, seqlen_q, head_dim); K, V, DK, DV (batch, num_head_k, seqlen_k, head_dim); the last
stride is 1. L and D are float32 (batch * num_head_q, seqlen_q), row stride `stride_lz` and `stride_dz`. `group` is
num_head_q / num_head_k. `causal` is 0 for full attention, 1 for a right bound only (key j serves query i when
j <= i + window_right), 2 for both bounds (and j >= i - window_left). `dtype` holds aotriton::DType.
`runtime/src/operators.def` mirrors this table; the interface hash holds the two together.
"""

from aotforge.rules import Operator, Value, ValueType


def _values(type_: ValueType, names: str) -> tuple[Value, ...]:
    return tuple(Value(name=name, type=type_) for name in names.split())


_SHAPE = (
    *_values("i32", "batch num_head_q num_head_k group seqlen_q seqlen_k head_dim head_dim_v"),
    *_values("ptr", "cu_seqlens_q cu_seqlens_k"),
)
_SEMANTICS = (
    *_values("f32", "sm_scale dropout_p"),
    *_values("ptr", "philox_seed philox_offset1"),
    *_values("u64", "philox_offset2"),
    *_values("i32", "dtype causal window_left window_right bias_type dropout varlen_type"),
)

ATTN_FWD = Operator(
    name="attn_fwd",
    values=(
        *_values("ptr", "Q K V B A L Out"),
        *_values(
            "i64", "stride_qz stride_qh stride_qm stride_kz stride_kh stride_kn stride_vz stride_vh stride_vn"
        ),
        *_values(
            "i64", "stride_bz stride_bh stride_bm stride_bn stride_az stride_lz stride_oz stride_oh stride_om"
        ),
        *_SHAPE,
        *_SEMANTICS,
        *_values("ptr", "philox_seed_output philox_offset_output encoded_softmax"),
        *_values("i64", "stride_rz stride_rh stride_rm stride_rn"),
        *_values("ptr", "persistent_atomic_counter"),
    ),
)

ATTN_BWD = Operator(
    name="attn_bwd",
    values=(
        *_values("ptr", "Q K V B Out DO DK DV DQ DB L D DQ_ACC"),
        *_values(
            "i64", "stride_qz stride_qh stride_qm stride_kz stride_kh stride_kn stride_vz stride_vh stride_vn"
        ),
        *_values("i64", "stride_bz stride_bh stride_bm stride_bn stride_oz stride_oh stride_om"),
        *_values(
            "i64",
            "stride_doz stride_doh stride_dom stride_dkz stride_dkh stride_dkn stride_dvz stride_dvh stride_dvn",
        ),
        *_values(
            "i64",
            "stride_dqz stride_dqh stride_dqm stride_dbz stride_dbh stride_dbm stride_dbn stride_lz stride_dz",
        ),
        *_values("i64", "stride_dqaz stride_dqah stride_dqam"),
        *_SHAPE,
        *_SEMANTICS,
    ),
)
