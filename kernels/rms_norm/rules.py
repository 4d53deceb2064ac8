"""RMSNorm of the last axis: one operator, one kernel; short rows several per program, long ones in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.base.tuning import tuning
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
_COLUMNS = (64, 128, 512, 1024, 2048, 4096, 8192, 16384)
"""Rows up to each of these numbers of columns have an image, others are read in blocks."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """`rows` of a program, each of at most `most_columns`, or in blocks of `block` columns."""

    rows: int = 1
    most_columns: int = 0
    block: int = 0
    num_warps: int = 4
    num_stages: int = 1

    def setting(self, **constants: int | bool) -> Setting:
        """With the constants that the rows' kernel has beside ROWS."""
        return Setting(
            constants={"ROWS": self.rows, **constants}, num_warps=self.num_warps, num_stages=self.num_stages
        )


def _settings(target: Target, functional: Functional) -> tuple[Setting, ...]:
    columns = functional["row"]
    table = tuning().rows("rms_norm.rms_norm_rows", target.arch, target.warp_size, Tuned)
    if columns == "any":
        return tuple(row.setting(BLOCK=row.block, LOOP=True) for row in table if row.block)[:1]
    fitting = (row for row in table if row.most_columns >= int(columns))
    return tuple(row.setting(BLOCK=int(columns), LOOP=False) for row in fitting)[:1]


_KERNEL = Kernel(
    name="rms_norm_rows",
    source="rms_norm.py",
    function="rms_norm_rows",
    operator="rms_norm_rows",
    choices=(
        Choice(name="dtype", key="dtype", options=dtypes("fp16", "bf16", "fp32")),
        Choice(
            name="row", key="columns", options={**{row: row for row in _COLUMNS}, "any": _ANY}, ladder=True
        ),
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
