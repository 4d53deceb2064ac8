"""Tensors among canaries: inputs and outputs of a kernel that is being checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.virtual_gpu.interpreter.number_formats import STORAGE, DType, decode, encode

Float = npt.NDArray[np.float64]
# NaN in every type; outputs have another payload, as NaN computed from inputs' canaries keeps their payload
_CANARY = {2: 0x7FD5, 4: 0x7FD5AA55}
_OUTPUT_CANARY = {2: 0x7FE6, 4: 0x7FE6AA55}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Order of batch, head and row from the outermost in, and where the tensor starts.

    `row_padding` elements follow each row and `spare_rows` rows each head's last one; they hold canaries.
    """

    order: tuple[int, int, int] = (0, 1, 2)
    row_padding: int = 0
    spare_rows: int = 0
    offset: int = 64

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """In elements; the last axis is dense."""
        strides, step = [0, 0, 0, 1], shape[3] + self.row_padding
        for axis in reversed(self.order):
            strides[axis] = step
            step *= max(shape[axis] + (self.spare_rows if axis == 2 else 0), 1)
        return tuple(strides)


class Guarded:
    """A tensor inside a larger buffer of canaries, which are NaN: reading one shows in the result, writing
    one in `intact`.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, layout: Layout, values: Float | None = None
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self.strides = layout.strides(shape)
        extent = sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True)) + 1 if min(shape) else 0
        itemsize = STORAGE[dtype].itemsize
        bits = np.dtype(f"u{itemsize}")
        canary = (_OUTPUT_CANARY if values is None else _CANARY)[itemsize]
        raw = np.full(layout.offset + extent + 64 + 32, canary, dtype=bits)
        skew = -raw.ctypes.data % 64 // itemsize  # offsets of 64 elements are then aligned, odd ones are not
        self.storage = raw[skew : skew + layout.offset + extent + 64]
        self._origin = layout.offset
        if values is not None:
            self.bits()[...] = encode(values, dtype).view(bits)
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

    def values(self) -> Float:
        """The tensor's elements as numbers: a copy."""
        return decode(np.ascontiguousarray(self.bits()).view(STORAGE[self.dtype]), self.dtype)

    def intact(self) -> bool:
        """No element outside of the tensor has changed."""
        after = self.storage.copy()
        self._inside(after)[...] = self._inside(self._before)
        return bool(np.array_equal(after, self._before))

    def unchanged(self) -> bool:
        """Neither the tensor nor anything around it has changed."""
        return bool(np.array_equal(self.storage, self._before))
