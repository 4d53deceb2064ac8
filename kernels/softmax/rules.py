"""Softmax along an axis: rows of contiguous columns, several per program where they are short, and columns of
any stride."""

from __future__ import annotations

from functools import partial

from aotforge.base.row_settings import ROW, TunedRows, row_settings
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
_TENSORS = ("input", "out")
_BATCH = batch_values(_TENSORS, _RANK)
_POINTERS = tuple(Value(name=name, type="ptr") for name in _TENSORS)
_DTYPES = ("fp16", "bf16", "fp32")
SOFTMAX_ROWS = Operator(
    name="softmax_rows",
    values=(
        *_POINTERS,
        Value(name="n", type="i32"),
        Value(name="columns", type="i32"),
        *_BATCH,
        Value(name="dtype", type="i32"),
    ),
)
SOFTMAX_COLUMNS = Operator(
    name="softmax_columns",
    values=(
        *_POINTERS,
        Value(name="columns", type="i32"),
        *(Value(name=f"stride_{name}_columns", type="i64") for name in _TENSORS),
        *_BATCH,
        Value(name=f"size_{_RANK - 1}", type="i32"),
        Value(name="dtype", type="i32"),
    ),
)


def _columns(target: Target, functional: Functional) -> tuple[Setting, ...]:
    table = tuning().rows("softmax.softmax_columns", target.arch, target.warp_size, TunedRows)
    return tuple(row.setting(BLOCK=row.block) for row in table[:1])


_DTYPE = Choice(name="dtype", key="dtype", options=dtypes(*_DTYPES))
_TENSOR_ARGUMENTS = tuple(
    Argument(name=name, type="*{dtype}", value=name, divisible_by=16) for name in _TENSORS
)


def _batch(*, first: int) -> tuple[Argument, ...]:
    """Sizes of batch axes, then strides, which are hinted from axis `first` on."""
    return tuple(
        Argument(
            name=value.name,
            type=value.type,
            value=value.name,
            divisible_by=8 if value.type == "i64" and int(value.name[-1]) >= first else None,
        )
        for value in _BATCH
    )


_KERNELS = (
    Kernel(
        name="softmax_rows",
        source="softmax.py",
        function="softmax_rows",
        operator="softmax_rows",
        choices=(
            _DTYPE,
            ROW,
        ),
        arguments=(
            *_TENSOR_ARGUMENTS,
            Argument(name="n", type="i32", value="n"),
            Argument(name="columns", type="i32", value="columns", divisible_by=8),
            *_batch(first=0),
        ),
        settings=partial(row_settings, "softmax.softmax_rows"),
        grid=((Term(value="n", divisor="ROWS"),),),
    ),
    Kernel(
        name="softmax_columns",
        source="softmax.py",
        function="softmax_columns",
        operator="softmax_columns",
        choices=(_DTYPE,),
        arguments=(
            *_TENSOR_ARGUMENTS,
            Argument(name="columns", type="i32", value="columns"),
            Argument(name="size_0", type="i32", value="size_0", divisible_by=8),
            *_batch(first=1)[1:3],
            # the kernel compares these and the strides of axis 0 itself
            *(
                Argument(name=f"stride_{name}_columns", type="i64", value=f"stride_{name}_columns")
                for name in _TENSORS
            ),
            *_batch(first=1)[3:],
        ),
        settings=_columns,
        grid=(
            (Term(value="size_0", divisor="ROWS"), *(Term(value=f"size_{axis}") for axis in range(1, _RANK))),
        ),
    ),
)

SOFTMAX = Function(
    name="softmax",
    summary="out = exp(input) / sum(exp(input)) along the axis `dim`; negative ones count from the last",
    parameters=(
        Parameter(name="input", kind="input", axes=("columns",), reused=True),
        Parameter(name="dim", kind="axis"),
        Parameter(name="out", kind="output", axes=("columns",)),
    ),
    dtypes=_DTYPES,
    forms=(
        Form(operator="softmax_rows", rank=_RANK),
        Form(operator="softmax_columns", rank=_RANK),
    ),
)

FAMILY = Family(
    name="softmax", operators=(SOFTMAX_ROWS, SOFTMAX_COLUMNS), kernels=_KERNELS, functions=(SOFTMAX,)
)
