"""The operator of the fused backward pass: what callers of `attn_bwd` pass for dense calls without bias and
dropout, and a workspace.

Shapes and names are those of `attn_bwd`. DQ_ACC is float32 of DQ's shape, rows of a head one after another,
and zero before the call;
its contents after it have no meaning. `mask` is 0 for full attention, 1 for the window from window_left to
window_right.
"""

from aotforge.rules import Operator, Value, ValueType


def _values(type_: ValueType, names: str) -> tuple[Value, ...]:
    return tuple(Value(name=name, type=type_) for name in names.split())


def _strides(names: str, axes: str) -> tuple[Value, ...]:
    return _values("i64", " ".join(f"stride_{name}{axis}" for name in names.split() for axis in axes))


ATTN_BWD_ATOMIC = Operator(
    name="attn_bwd_atomic",
    values=(
        *_values("ptr", "Q K V Out DO DK DV DQ L D DQ_ACC"),
        *_strides("q o do dq dqa l d", "zhm"),
        *_strides("k v dk dv", "zhn"),
        *_values("i32", "batch num_head_q num_head_k group seqlen_q seqlen_k head_dim"),
        *_values("f32", "sm_scale"),
        *_values("i32", "dtype mask window_left window_right"),
    ),
)
