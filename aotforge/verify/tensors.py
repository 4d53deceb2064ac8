"""Tensors among canaries: inputs and outputs of a kernel that is being checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.errors import RulesError, suggest
from aotforge.rules import DTYPE_NUMBERS
from aotforge.verify.interpreter.number_formats import (
    DTYPES,
    STORAGE,
    Array,
    DType,
    decode,
    encode,
    is_exact,
    nan_patterns,
)

Float = npt.NDArray[np.float64]
_SPARE = 64
"""Elements of canaries after a tensor; as many before it keep it aligned."""


def check_dtype(name: str) -> DType:
    """`name`, which is an element type. Raises RulesError."""
    if name in DTYPES:
        return name
    raise RulesError(
        f"{name!r} is not a valid element type",
        cause="a tensor of the family's cases.py has it",
        hint=suggest(name, DTYPES),
    )


def dtype_of(number: int) -> DType:
    """The element type of an operator value such as `dtype`. Raises RulesError."""
    names = {known: name for name, known in DTYPE_NUMBERS.items()}
    if number in names:
        return check_dtype(names[number])
    raise RulesError(
        f"{number} is not the number of an element type",
        cause="the choice's options are not those of `rules.dtypes`",
        hint="use options=dtypes(...) in rules.py",
    )


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Order of all axes but the last from the outermost in (empty: as they are), and where the tensor starts.

    `row_padding` elements follow each row and `spare_rows` rows each matrix' last one; they hold canaries.
    """

    order: tuple[int, ...] = ()
    row_padding: int = 0
    spare_rows: int = 0
    offset: int = 64

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """In elements; the last axis is dense. Raises RulesError for an order of other axes."""
        if not shape:
            return ()
        outer = len(shape) - 1
        order = self.order or tuple(range(outer))
        if sorted(order) != list(range(outer)):
            raise RulesError(
                f"the order {order} does not fit a tensor of {len(shape)} axes",
                cause="it lists every axis but the last once",
                hint="correct the layout in the family's cases.py",
            )
        strides, step = [1] * len(shape), shape[-1] + self.row_padding
        for axis in reversed(order):
            strides[axis] = step
            step *= max(shape[axis] + (self.spare_rows if axis == outer - 1 else 0), 1)
        return tuple(strides)


class Guarded:
    """A tensor inside a larger buffer of canaries: reading one shows in the result, writing one in `intact`.

    Canaries are NaN where the type has two, else numbers that differ; those of outputs differ from inputs',
    whose NaN keep their payload in computations. Elements where `within` (if any) is false are canaries.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        layout: Layout,
        values: Array | None = None,
        within: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.shape, self.dtype = shape, check_dtype(dtype)
        self.strides = layout.strides(shape)
        extent = sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True)) + 1 if all(shape) else 0
        itemsize = STORAGE[dtype].itemsize
        raw = _canaries(dtype, layout.offset + extent + 2 * _SPARE, output=values is None)
        skew = -raw.ctypes.data % 64 // itemsize  # offsets of 64 elements are then aligned, odd ones are not
        self.storage = raw[skew : skew + layout.offset + extent + _SPARE]
        self._origin = layout.offset
        self._within = np.ones((1,) * len(shape), dtype=np.bool_) if within is None else within
        if values is not None:
            np.copyto(self.bits(), _encoded(values, dtype).view(raw.dtype), where=self._within)
        self._before = self.storage.copy()

    @property
    def address(self) -> int:
        """Of the first element."""
        return int(self.storage.ctypes.data) + self._origin * self.storage.itemsize

    def _inside(self, storage: npt.NDArray[Any]) -> npt.NDArray[Any]:
        strides = tuple(s * storage.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(storage[self._origin :], self.shape, strides)

    def bits(self) -> npt.NDArray[Any]:
        """The tensor's elements as unsigned integers: a view."""
        return self._inside(self.storage)

    def values(self) -> Array:
        """The tensor's elements as numbers: a copy, float64 of floats, integers of their own type."""
        stored = np.where(self._within, self.bits(), self.storage.dtype.type(0)).reshape(self.shape)
        return decode(stored.view(STORAGE[self.dtype]), self.dtype)

    def intact(self) -> bool:
        """No element outside of the tensor has changed."""
        after = self.storage.copy()
        np.copyto(self._inside(after), self._inside(self._before), where=self._within)
        return bool(np.array_equal(after, self._before))

    def unchanged(self) -> bool:
        """Neither the tensor nor anything around it has changed."""
        return bool(np.array_equal(self.storage, self._before))


def _canaries(dtype: DType, count: int, *, output: bool) -> npt.NDArray[Any]:
    itemsize = STORAGE[dtype].itemsize
    if patterns := nan_patterns(dtype):
        return np.full(count, patterns[output], dtype=f"u{itemsize}")
    # 0 and 1 are left out: they are what kernels write by mistake, and all that bool has
    drawn = np.random.default_rng(int(output)).integers(2, 256, size=count * itemsize, dtype=np.uint8)
    return drawn.view(f"u{itemsize}")


def _encoded(values: Array, dtype: DType) -> Array:
    """The bits of values. Raises RulesError for integers that the type does not have."""
    stored = np.asarray(encode(values, dtype))
    kept = np.array_equal(stored, values) and not (dtype == "i1" and (stored > 1).any())
    if is_exact(dtype) and not kept:
        raise RulesError(
            f"an input of type {dtype} has a value that {dtype} does not have",
            hint="draw other values in the family's cases.py",
        )
    return stored
