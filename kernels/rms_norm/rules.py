"""RMSNorm of the last axis: one operator, one kernel; short rows several per program, long ones in blocks."""

from __future__ import annotations

from functools import partial

from aotforge.base.row_settings import ROW, row_settings
from aotforge.rules import (
    Argument,
    Choice,
    Family,
    Form,
    Function,
    Kernel,
    Operator,
    Parameter,
    Term,
    Value,
    batch_values,
    dtypes,
)

_RANK = 4
_BATCH = batch_values(("input", "out"), _RANK)
RMS_NORM_ROWS = Operator(
    name="rms_norm_rows",
    values=(
        *(Value(name=name, type="ptr") for name in ("input", "weight", "out")),
        Value(name="n", type="i32"),
        Value(name="columns", type="i32"),
        Value(name="eps", type="f32"),
        *_BATCH,
        Value(name="dtype", type="i32"),
    ),
)

_KERNEL = Kernel(
    name="rms_norm_rows",
    source="rms_norm.py",
    function="rms_norm_rows",
    operator="rms_norm_rows",
    choices=(
        Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16", "fp32")),
        ROW,
    ),
    arguments=(
        *(
            Argument(name=name, type="*{dtype}", value=name, divisible_by=16)
            for name in ("input", "weight", "out")
        ),
        Argument(name="n", type="i32", value="n"),
        Argument(name="columns", type="i32", value="columns", divisible_by=8),
        Argument(name="eps", type="fp32", value="eps"),
        *(
            Argument(
                name=value.name,
                type=value.type,
                value=value.name,
                divisible_by=8 if value.type == "i64" else None,
            )
            for value in _BATCH
        ),
    ),
    settings=partial(row_settings, "rms_norm.rms_norm_rows"),
    grid=((Term(value="n", divisor="ROWS"),),),
)

RMS_NORM = Function(
    name="rms_norm",
    summary="out = input / sqrt(mean(input^2) + eps) * weight, the mean over the last axis",
    parameters=(
        Parameter(name="input", kind="input", axes=("columns",), reused=True),
        Parameter(name="weight", kind="input", axes=("columns",)),
        Parameter(name="eps", kind="number"),
        Parameter(name="out", kind="output", axes=("columns",)),
    ),
    dtypes=("fp16", "bf16", "fp32"),
    forms=(Form(operator="rms_norm_rows", rank=_RANK),),
)

FAMILY = Family(name="rms_norm", operators=(RMS_NORM_ROWS,), kernels=(_KERNEL,), functions=(RMS_NORM,))
