"""Operators of the matrix product: by which strides are 1."""

from __future__ import annotations

from aotforge.rules import Operator, Value, batch_values

RANK = 4
TENSORS = ("input", "weight", "bias", "out")
CORES = {
    "input": ("rows", "inner"),
    "weight": ("inner", "columns"),
    "bias": ("columns",),
    "out": ("rows", "columns"),
}
"""Axes of each tensor's matrix."""


def _operator(name: str, strides: tuple[str, ...]) -> Operator:
    return Operator(
        name=name,
        values=(
            *(Value(name=tensor, type="ptr") for tensor in TENSORS),
            Value(name="has_bias", type="i32"),
            Value(name="activation", type="i32"),
            Value(name="n", type="i32"),
            *(Value(name=core, type="i32") for core in ("rows", "columns", "inner")),
            *(Value(name=f"stride_{stride}", type="i64") for stride in strides),
            *batch_values(TENSORS, RANK),
            Value(name="dtype", type="i32"),
        ),
    )


GEMM_NN = _operator("gemm_nn", ("input_rows", "weight_inner", "out_rows"))
GEMM_NT = _operator("gemm_nt", ("input_rows", "weight_columns", "out_rows"))
GEMM_STRIDED = _operator(
    "gemm_strided", tuple(f"{tensor}_{core}" for tensor, cores in CORES.items() for core in cores)
)
