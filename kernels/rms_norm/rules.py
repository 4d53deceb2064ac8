"""RMSNorm of the last axis: one operator, one kernel; short rows several per program, long ones in blocks."""

from __future__ import annotations

from aotforge.rules import (
    Argument,
    Choice,
    Family,
    Form,
    Function,
    Functional,
    Kernel,
    Operator,
    Parameter,
    Setting,
    Target,
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

_ANY = 2**31 - 1
_ROWS = {64: 32, 128: 16, 512: 8, 1024: 4, 2048: 2, 4096: 1, 8192: 1, 16384: 1}
"""Rows of a program by the most columns of its block."""


def _settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    row = functional["row"]
    if row == "any":
        return (Setting(constants={"ROWS": 1, "BLOCK": 4096, "LOOP": True}, num_warps=16, num_stages=1),)
    columns = int(row)
    constants = {"ROWS": _ROWS[columns], "BLOCK": columns, "LOOP": False}
    warps = 16 if columns > 8192 else 8 if columns > 2048 else 4
    return (Setting(constants=constants, num_warps=warps, num_stages=1),)


_KERNEL = Kernel(
    name="rms_norm_rows",
    source="rms_norm.py",
    function="rms_norm_rows",
    operator="rms_norm_rows",
    choices=(
        Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16", "fp32")),
        Choice(name="row", key="columns", options={**{row: row for row in _ROWS}, "any": _ANY}, ladder=True),
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
    settings=_settings,
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
