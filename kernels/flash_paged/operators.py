"""Operators of attention over a paged cache of keys and values. Shapes in elements; every last stride is 1.

Q, Out: (total_q, num_head_q, head_dim), the queries of all sequences one after the other; those of sequence z
are rows cu_seqlens_q[z] .. cu_seqlens_q[z + 1] - 1. K, V: (pages, page_size, num_head_k, head_dim), of the type
`cache`; key j of sequence z is row j % page_size of page block_table[z, j // page_size], for j < seqused_k[z].
`group` is num_head_q / num_head_k, `rows` is group times the most queries of a sequence.

Query i of a sequence sees key j when j <= i + seqused_k - queries (only if `causal` is 1) and, unless
window_left is negative, j >= i + seqused_k - queries - window_left. Scores are sm_scale q k, with a softcap
other than 0 softcap tanh(score / softcap). `sinks` (num_head_q, float32) are logits that take part in the sum
of exponentials and have no value; 0: none. k_scale and v_scale (float32, read for caches of 8 bits only)
multiply what is stored in K and V: one number each (stride_scale 0), or one for each key head (1).

num_splits is 1, or the keys of all sequences are divided: split s has keys s * split_keys .. (s + 1) *
split_keys - 1, so num_splits * split_keys is at least the longest seqused_k. O_part (total_q, num_head_q,
num_splits, head_dim) and L_part (total_q, num_head_q, num_splits), both float32 and dense, are then scratch
memory of the call, and `rows_combined` is total_q * num_head_q; it is 0 with one split. Rows of O_part whose
split has no key that the query sees are not written. L, log-sum-exp, may be 0: it is then not written. Rows
without keys have Out 0 and L +inf, with sinks L is the sink.

reshape_and_cache writes K_new and V_new (tokens, num_head_k, head_dim) divided by their scales to the rows
slots[token] = page * page_size + row of K and V; tokens with a negative slot are left out, and
slots are below 2^31.
"""

from aotforge.rules import Operator, Value, ValueType


def _values(type_: ValueType, names: str) -> tuple[Value, ...]:
    return tuple(Value(name=name, type=type_) for name in names.split())


PAGED_ATTN = Operator(
    name="paged_attn",
    values=(
        *_values("ptr", "Q K V Out L O_part L_part sinks k_scale v_scale block_table cu_seqlens_q seqused_k"),
        *_values("i64", "stride_qm stride_qh stride_kp stride_kn stride_kh stride_vp stride_vn stride_vh"),
        *_values("i64", "stride_om stride_oh stride_lm stride_lh stride_table stride_scale"),
        *_values("i32", "batch num_head_q num_head_k group rows page_size num_splits split_keys"),
        *_values("i32", "rows_combined causal window_left"),
        *_values("f32", "sm_scale softcap"),
        *_values("i32", "head_dim dtype cache"),
    ),
)

RESHAPE_AND_CACHE = Operator(
    name="reshape_and_cache",
    values=(
        *_values("ptr", "K_new V_new K V k_scale v_scale slots"),
        *_values("i64", "stride_nm stride_nh stride_wm stride_wh"),
        *_values("i64", "stride_kp stride_kn stride_kh stride_vp stride_vn stride_vh stride_scale"),
        *_values("i32", "tokens num_head_k page_size head_dim dtype cache"),
    ),
)
"""`stride_n*` are those of K_new, `stride_w*` those of V_new."""
