"""Elementwise functions of the operator library: add."""

from __future__ import annotations

from aotforge.rules import (
    Argument,
    Choice,
    Elementwise,
    Family,
    Form,
    Functional,
    Kernel,
    Operator,
    Parameter,
    Setting,
    Target,
    Term,
    dtypes,
)

from .operators import ADD_DENSE, ADD_ROWS, ADD_STRIDED, ROWS_RANK, STRIDED_RANK, TENSORS

_DTYPES = ("fp16", "bf16", "fp32", "fp64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_SHORT_ROW = 64


def _vector(functional: Functional) -> int:
    """Elements in the 16 bytes that a lane loads at once."""
    dtype = str(functional["dtype"])
    return 16 // next(size for digits, size in _BYTES.items() if dtype.endswith(digits))


def _dense(target: Target, functional: Functional) -> tuple[Setting, ...]:
    # four warps keep each scheduler of a compute unit busy
    return (
        Setting(constants={"BLOCK": 4 * target.warp_size * _vector(functional)}, num_warps=4, num_stages=1),
    )


def _strided(target: Target, functional: Functional) -> tuple[Setting, ...]:
    # two elements a lane: their divisions overlap
    return (Setting(constants={"BLOCK": 8 * target.warp_size}, num_warps=4, num_stages=1, hinted=False),)


_DTYPE = Choice(name="dtype", key="dtype", options=dtypes(*_DTYPES))


def _pointers(divisible_by: int | None) -> tuple[Argument, ...]:
    return (
        *(Argument(name=name, type="*{dtype}", value=name, divisible_by=divisible_by) for name in TENSORS),
        Argument(name="alpha", type="i64", value="alpha"),
    )


def _numbers(
    operator: Operator, prefix: str, kind: str, divisible_by: int | None = None
) -> tuple[Argument, ...]:
    return tuple(
        Argument(name=value.name, type=kind, value=value.name, divisible_by=divisible_by)
        for value in operator.values
        if value.name.startswith(prefix)
    )


_KERNELS = (
    Kernel(
        name="add_dense",
        source="add.py",
        function="add_dense",
        operator="add_dense",
        choices=(_DTYPE,),
        arguments=(*_pointers(16), Argument(name="n", type="i64", value="n", divisible_by=8)),
        settings=_dense,
        grid=((Term(value="n", divisor="BLOCK"),),),
    ),
    Kernel(
        name="add_rows",
        source="add.py",
        function="add_rows",
        operator="add_rows",
        choices=(_DTYPE,),
        arguments=(
            *_pointers(16),
            Argument(name="size_0", type="i32", value="size_0", divisible_by=8),
            Argument(name="size_1", type="i32", value="size_1"),
            Argument(name="size_2", type="i32", value="size_2"),
            *_numbers(ADD_ROWS, "stride_", "i64", 8),
        ),
        settings=_dense,
        grid=((Term(value="size_0", divisor="BLOCK"), Term(value="rows")),),
    ),
    Kernel(
        name="add_strided",
        source="add.py",
        function="add_strided",
        operator="add_strided",
        choices=(_DTYPE, Choice(name="rank", key="rank", options={4: 4, 8: 8}, ladder=True)),
        arguments=(
            *_pointers(None),
            Argument(name="n", type="i32", value="n"),
            *_numbers(ADD_STRIDED, "size_", "i32"),
            *_numbers(ADD_STRIDED, "stride_", "i64"),
        ),
        settings=_strided,
        grid=((Term(value="n", divisor="BLOCK"),),),
        constants=lambda functional: {"RANK": functional["rank"]},
    ),
)

ADD = Elementwise(
    name="add",
    parameters=(
        Parameter(name="input", kind="input"),
        Parameter(name="other", kind="input"),
        Parameter(name="alpha", kind="number"),
        Parameter(name="out", kind="output"),
    ),
    dtypes=_DTYPES,
    forms=(
        Form(operator="add_dense", rank=1, dense=True, most=2**33),
        Form(operator="add_rows", rank=ROWS_RANK, dense=True, least=_SHORT_ROW),
        Form(operator="add_strided", rank=STRIDED_RANK),
    ),
)

FAMILY = Family(
    name="elementwise",
    operators=(ADD_DENSE, ADD_ROWS, ADD_STRIDED),
    kernels=_KERNELS,
    functions=(ADD,),
)
