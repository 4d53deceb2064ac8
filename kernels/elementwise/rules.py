"""Elementwise functions of the operator library: add."""

from __future__ import annotations

from aotforge.rules import (
    Argument,
    Between,
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
    dtypes,
)

from .operators import ADD_DENSE, ADD_STRIDED, ADD_TILES, STRIDED_RANK, TENSORS, TILES_RANK

_DTYPES = ("fp16", "bf16", "fp32", "fp64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_FEW_ROWS, _NARROW = 8, 32


def _vector(functional: Functional) -> int:
    """Elements in the 16 bytes that a lane loads at once."""
    dtype = str(functional["dtype"])
    return 16 // next(size for digits, size in _BYTES.items() if dtype.endswith(digits))


def _lanes(target: Target) -> int:
    """Of a program: four warps keep each scheduler of a compute unit busy; a processor's programs are as large, so that few calls do much."""
    return 256 if target.vendor == "cpu" else 4 * target.warp_size


def _dense(target: Target, functional: Functional) -> tuple[Setting, ...]:
    return (Setting(constants={"BLOCK": _lanes(target) * _vector(functional)}, num_warps=4, num_stages=1),)


def _tiles(target: Target, functional: Functional) -> tuple[Setting, ...]:
    vector = _vector(functional)
    few = Between(value="size_1", low=1, high=_FEW_ROWS)
    narrow = Between(value="size_0", low=1, high=_NARROW)
    side = 64 if vector > 2 else 32
    return (
        Setting(
            constants={"ROWS": 1, "COLUMNS": _lanes(target) * vector},
            when=(few,),
            num_warps=4,
            num_stages=1,
        ),
        Setting(
            constants={"ROWS": 2 * side, "COLUMNS": _NARROW},
            when=(narrow,),
            num_warps=4,
            num_stages=1,
            unaligned=False,
        ),
        Setting(constants={"ROWS": side, "COLUMNS": side}, num_warps=4, num_stages=1),
    )


def _strided(target: Target, functional: Functional) -> tuple[Setting, ...]:
    # two elements a lane: their divisions overlap
    return (Setting(constants={"BLOCK": 2 * _lanes(target)}, num_warps=4, num_stages=1, hinted=False),)


_DTYPE = Choice(name="dtype", key="dtype", options=dtypes(*_DTYPES))


def _pointers(divisible_by: int | None) -> tuple[Argument, ...]:
    return (
        *(Argument(name=name, type="*{dtype}", value=name, divisible_by=divisible_by) for name in TENSORS),
        Argument(name="alpha", type="i64", value="alpha"),
    )


def _numbers(operator: Operator, prefix: str, kind: str) -> tuple[Argument, ...]:
    return tuple(
        Argument(name=value.name, type=kind, value=value.name)
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
        name="add_tiles",
        source="add.py",
        function="add_tiles",
        operator="add_tiles",
        choices=(_DTYPE,),
        arguments=(
            *_pointers(16),
            Argument(name="size_0", type="i32", value="size_0", divisible_by=8),
            Argument(name="size_1", type="i32", value="size_1"),
            Argument(name="size_2", type="i32", value="size_2"),
            # the kernel compares the strides of axes 0 and 1 itself: which of them is 1 differs by tensor
            *(
                Argument(
                    name=f"stride_{tensor}_{axis}",
                    type="i64",
                    value=f"stride_{tensor}_{axis}",
                    divisible_by=8 if axis > 1 else None,
                )
                for tensor in TENSORS
                for axis in range(TILES_RANK)
            ),
        ),
        settings=_tiles,
        grid=(
            (
                Term(value="size_0", divisor="COLUMNS"),
                Term(value="size_1", divisor="ROWS"),
                Term(value="size_2"),
                Term(value="size_3"),
            ),
        ),
    ),
    Kernel(
        name="add_strided",
        source="add.py",
        function="add_strided",
        operator="add_strided",
        choices=(_DTYPE,),
        arguments=(
            *_pointers(None),
            Argument(name="n", type="i32", value="n"),
            *_numbers(ADD_STRIDED, "size_", "i32"),
            *_numbers(ADD_STRIDED, "stride_", "i64"),
        ),
        settings=_strided,
        grid=((Term(value="n", divisor="BLOCK"),),),
        constants=lambda functional: {"RANK": STRIDED_RANK},
    ),
)

ADD = Function(
    name="add",
    summary="out = input + alpha * other",
    parameters=(
        Parameter(name="input", kind="input", reused=True),
        Parameter(name="other", kind="input", reused=True),
        Parameter(name="alpha", kind="number"),
        Parameter(name="out", kind="output"),
    ),
    dtypes=_DTYPES,
    forms=(
        Form(operator="add_dense", rank=1, dense=True, most=2**33),
        Form(operator="add_tiles", rank=TILES_RANK, least=16, least_area=1024),
        Form(operator="add_strided", rank=STRIDED_RANK),
    ),
)

FAMILY = Family(
    name="elementwise",
    operators=(ADD_DENSE, ADD_TILES, ADD_STRIDED),
    kernels=_KERNELS,
    functions=(ADD,),
)
