"""The two attention operators: every value that the public C++ interface conveys, by name, whether or not a
kernel uses it yet.

Shapes, in elements: Q, DQ (batch, num_head_q, seqlen_q, head_dim); Out, DO the same with head_dim_v; K, DK
(batch, num_head_k, seqlen_k,
head_dim); V, DV the same with head_dim_v; their last stride is 1. B, DB (batch, num_head_q, seqlen_q,
seqlen_k). `width` is the larger of
head_dim and head_dim_v, `group` is num_head_q / num_head_k, `dtype` holds aotriton::DType. L and D are
float32: element (sequence z, head h,
row r) is at z * stride_lz + h * stride_lh + (r + start) * stride_lm, where start is the sequence's first
token if `lse_packed`, else 0.

`mask` is 0 for full attention, 1 for a window (key j serves query i when i - window_left <= j <= i +
window_right), 2 for the additive
bias B. `varlen_bits` is 0 for dense calls, whose windows the library has resolved and clamped. Else it holds,
per side, how a sequence's
plane, start and length follow from `seqinfo_*` (bits of Q 7:0, of K 15:8: 0 stacked, 2:1 length, 4:3
position, as in AOTriton 0.14's
VarlenBits); `batch` counts sequences, seqlen_q and seqlen_k are the longest ones, and the window is the
caller's, constants included.
`runtime/src/operators.def` mirrors this table; the interface hash holds the two together.
"""

from aotforge.rules import Operator, Value, ValueType


def _values(type_: ValueType, names: str) -> tuple[Value, ...]:
    return tuple(Value(name=name, type=type_) for name in names.split())


_SHAPE = (
    *_values("i32", "batch num_head_q num_head_k group seqlen_q seqlen_k head_dim head_dim_v width"),
    *_values("ptr", "seqinfo_q0 seqinfo_q1 seqinfo_k0 seqinfo_k1"),
    *_values("i32", "varlen_bits lse_packed"),
)
_SEMANTICS = (
    *_values("f32", "sm_scale dropout_p"),
    *_values("ptr", "philox_seed philox_offset1"),
    *_values("u64", "philox_offset2"),
    *_values("i32", "dtype mask window_left window_right dropout"),
)

ATTN_FWD = Operator(
    name="attn_fwd",
    values=(
        *_values("ptr", "Q K V B L Out"),
        *_values(
            "i64", "stride_qz stride_qh stride_qm stride_kz stride_kh stride_kn stride_vz stride_vh stride_vn"
        ),
        *_values(
            "i64",
            "stride_bz stride_bh stride_bm stride_bn stride_lz stride_lh stride_lm stride_oz stride_oh stride_om",
        ),
        *_SHAPE,
        *_SEMANTICS,
        *_values("ptr", "philox_seed_output philox_offset_output persistent_atomic_counter"),
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
            "stride_dqz stride_dqh stride_dqm stride_dbz stride_dbh stride_dbm stride_dbn",
        ),
        *_values("i64", "stride_lz stride_lh stride_lm stride_dz stride_dh stride_dm"),
        *_values("i64", "stride_dqaz stride_dqah stride_dqam"),
        *_SHAPE,
        *_SEMANTICS,
    ),
)

ATTN_DROPOUT_MASK = Operator(
    name="attn_dropout_mask",
    values=(
        *_values("ptr", "R"),
        *_values("i64", "stride_rz stride_rh stride_rm stride_rn"),
        *_values("i32", "batch num_head_q seqlen_q seqlen_k"),
        *_values("f32", "dropout_p"),
        *_values("ptr", "philox_seed philox_offset1"),
        *_values("u64", "philox_offset2"),
        *_values("i32", "dtype"),
    ),
)
"""R (batch, num_head_q, seqlen_q, seqlen_k) becomes +0.5 where dropout keeps an element, -0.5 where it drops it. A null seed or
offset1 counts as 0; with dropout_p 0 neither is read."""
