"""The operators of out = input + alpha * other, one per form of the tensors. `alpha` as `rules.Parameter` describes numbers."""

from aotforge.rules import Operator, Value

TENSORS = ("input", "other", "out")
ROWS_RANK, STRIDED_RANK = 4, 8

_POINTERS = tuple(Value(name=name, type="ptr") for name in TENSORS)
_ALPHA, _DTYPE = Value(name="alpha", type="i64"), Value(name="dtype", type="i32")


def _sizes(low: int, high: int) -> tuple[Value, ...]:
    return tuple(Value(name=f"size_{axis}", type="i32") for axis in range(low, high))


def _strides(low: int, high: int) -> tuple[Value, ...]:
    return tuple(
        Value(name=f"stride_{tensor}_{axis}", type="i64") for tensor in TENSORS for axis in range(low, high)
    )


ADD_DENSE = Operator(name="add_dense", values=(*_POINTERS, _ALPHA, Value(name="n", type="i64"), _DTYPE))
"""All tensors contiguous, in the same order of axes."""

ADD_ROWS = Operator(
    name="add_rows",
    values=(
        *_POINTERS,
        _ALPHA,
        Value(name="rows", type="i32"),
        *_sizes(0, ROWS_RANK - 1),
        *_strides(1, ROWS_RANK),
        _DTYPE,
    ),
)
"""Rows are contiguous. The size of the outermost axis follows from `rows`."""

ADD_STRIDED = Operator(
    name="add_strided",
    values=(
        *_POINTERS,
        _ALPHA,
        Value(name="n", type="i32"),
        Value(name="rank", type="i32"),
        *_sizes(0, STRIDED_RANK - 1),
        *_strides(0, STRIDED_RANK),
        _DTYPE,
    ),
)
"""Any strides. The size of the outermost axis follows from `n`."""
