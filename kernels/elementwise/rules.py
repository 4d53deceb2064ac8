"""Elementwise functions of the operator library: add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aotforge.base.tuning import tuning
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


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for some dtypes (all when empty); of each kind of calls the first that fits is taken.

    A program has `lane_bytes` or `lane_elements` of a tensor for each of `lanes` (0: those of the warps): as
    its block, or where
    `columns` is 0 as the columns of its tile of `rows`. `most_rows`, `most_columns`: for calls with at most
    that size (any when 0).
    """

    lane_bytes: int = 0
    lane_elements: int = 0
    lanes: int = 0
    rows: int = 1
    columns: int = 0
    most_rows: int = 0
    most_columns: int = 0
    num_warps: int = 4
    num_stages: int = 1
    dtypes: tuple[str, ...] = ()

    def block(self, target: Target, dtype: str) -> int:
        """Elements of a program."""
        lanes = self.lanes or self.num_warps * target.warp_size
        element = next(size for digits, size in _BYTES.items() if dtype.endswith(digits))
        return lanes * (self.lane_elements or self.lane_bytes // element)


def _rows(kernel: str, target: Target, functional: Functional) -> Iterator[Tuned]:
    """The first row of each kind, in the order of the kinds."""
    kinds = set()
    for row in tuning().rows(f"elementwise.{kernel}", target.arch, target.warp_size, Tuned):
        kind = (row.most_rows, row.most_columns)
        if kind not in kinds and (not row.dtypes or functional["dtype"] in row.dtypes):
            kinds.add(kind)
            yield row


def _blocks(kernel: str, target: Target, functional: Functional, *, hinted: bool) -> tuple[Setting, ...]:
    """Of add_dense and add_strided."""
    return tuple(
        Setting(
            constants={"BLOCK": row.block(target, str(functional["dtype"]))},
            num_warps=row.num_warps,
            num_stages=row.num_stages,
            hinted=hinted,
        )
        for row in _rows(kernel, target, functional)
    )


def _tile(row: Tuned, target: Target, dtype: str) -> Setting:
    columns = row.columns or row.block(target, dtype)
    bounds = (("size_1", row.most_rows), ("size_0", row.most_columns))
    return Setting(
        constants={"ROWS": row.rows, "COLUMNS": columns},
        when=tuple(Between(value=size, low=1, high=most) for size, most in bounds if most),
        num_warps=row.num_warps,
        num_stages=row.num_stages,
        unaligned=not row.most_columns,
    )


def _tiles(target: Target, functional: Functional) -> tuple[Setting, ...]:
    dtype = str(functional["dtype"])
    return tuple(_tile(row, target, dtype) for row in _rows("add_tiles", target, functional))


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
        settings=lambda target, functional: _blocks("add_dense", target, functional, hinted=True),
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
        settings=lambda target, functional: _blocks("add_strided", target, functional, hinted=False),
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
