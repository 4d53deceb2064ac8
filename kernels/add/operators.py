"""The operator `add`: out[i] = x[i] + y[i] for i < n, contiguous. `dtype` holds aotriton::DType."""

from aotforge.rules import Operator, Value

ADD = Operator(
    name="add",
    values=(
        Value(name="x", type="ptr"),
        Value(name="y", type="ptr"),
        Value(name="out", type="ptr"),
        Value(name="n", type="i64"),
        Value(name="dtype", type="i32"),
    ),
)
