"""The operators of out = input + alpha * other, one per form of the tensors. `alpha` as `rules.Parameter`
describes numbers."""

from aotforge.rules import Operator, Value, batch_values

TENSORS = ("input", "other", "out")
TILES_RANK, STRIDED_RANK = 4, 8

_POINTERS = tuple(Value(name=name, type="ptr") for name in TENSORS)
_ALPHA, _DTYPE = Value(name="alpha", type="i64"), Value(name="dtype", type="i32")

ADD_DENSE = Operator(name="add_dense", values=(*_POINTERS, _ALPHA, Value(name="n", type="i64"), _DTYPE))
"""All tensors contiguous, in the same order of axes."""

ADD_TILES = Operator(
    name="add_tiles",
    values=(
        *_POINTERS,
        _ALPHA,
        *batch_values(TENSORS, TILES_RANK),
        Value(name=f"size_{TILES_RANK - 1}", type="i32"),
        _DTYPE,
    ),
)
"""Any strides of four axes, of which the two innermost have enough elements for a tile."""

ADD_STRIDED = Operator(
    name="add_strided",
    values=(*_POINTERS, _ALPHA, Value(name="n", type="i32"), *batch_values(TENSORS, STRIDED_RANK), _DTYPE),
)
"""Any strides. The size of the outermost axis follows from `n`."""
