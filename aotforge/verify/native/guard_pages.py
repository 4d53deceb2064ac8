"""Memory between pages without any access: a byte before or behind it cannot be used."""

from __future__ import annotations

import ctypes
import mmap
from typing import Literal

from aotforge.errors import ExecutionError
from aotforge.verify.tensors import Guarded

Side = Literal["begin", "end"]
"""Which end of the tensor is at a guard page, to the byte; the other one has canaries."""
PAGE = mmap.PAGESIZE
_ALIGNED = 16
"""Alignment that an image may have been compiled for: a tensor that has it keeps it."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_NONE, _READ = 0, 1


class Pages:
    """`size` bytes, shared with forked children, whose first or last byte is next to a guard page."""

    def __init__(self, size: int, side: Side) -> None:
        self.length = max(-(-size // PAGE), 1) * PAGE
        self._map = mmap.mmap(-1, self.length + 2 * PAGE)
        self._view = ctypes.c_char.from_buffer(self._map)
        self.first = ctypes.addressof(self._view) + PAGE
        self.address = self.first if side == "begin" else self.first + self.length - size
        _protect(self.first - PAGE, PAGE, _NONE)
        _protect(self.first + self.length, PAGE, _NONE)

    def make_read_only(self) -> None:
        """From now on a store is a fault."""
        _protect(self.first, self.length, _READ)

    def close(self) -> None:
        """Free the memory."""
        del self._view
        self._map.close()

    def has(self, address: int) -> bool:
        """Whether an address is in this memory or in its guard pages."""
        return self.first - PAGE <= address < self.first + self.length + PAGE


def _protect(address: int, size: int, access: int) -> None:
    if _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access) != 0:
        raise ExecutionError(f"guard pages cannot be made: mprotect, error {ctypes.get_errno()}")


class GuardedCopy:
    """A tensor at a guard page. Canaries are on the other side, and within rows that are apart."""

    def __init__(self, name: str, tensor: Guarded, side: Side, *, is_input: bool) -> None:
        self.name, self._tensor, self._is_input = name, tensor, is_input
        itemsize, sizes = tensor.storage.itemsize, zip(tensor.shape, tensor.strides, strict=True)
        # bytes from the first element to the end of the last one
        self.extent = (sum((n - 1) * s for n, s in sizes) + 1) * itemsize if all(tensor.shape) else 0
        before, start = tensor.address - tensor.storage.ctypes.data, 0
        slack = -self.extent % _ALIGNED if tensor.address % _ALIGNED == 0 else 0
        self._size = before + self.extent + slack
        if side == "begin":
            start, self._size = before, tensor.storage.nbytes - before
        self.pages = Pages(self._size, side)
        self.address = self.pages.address + before - start
        self._source = tensor.storage.ctypes.data + start
        ctypes.memmove(self.pages.address, self._source, self._size)
        if is_input:
            self.pages.make_read_only()

    def place(self, address: int) -> int | None:
        """Where an address of the original is here; None for one outside of it."""
        storage = self._tensor.storage
        if not storage.ctypes.data <= address <= storage.ctypes.data + storage.nbytes:
            return None
        return self.address + address - self._tensor.address

    def read_back(self) -> None:
        """Copies what the launch wrote into the original."""
        if not self._is_input:
            ctypes.memmove(self._source, self.pages.address, self._size)

    def fault(self, address: int, access: str) -> str:
        """Description of an access in these pages that the processor refused."""
        at, inner = address - self.address, address - self.pages.first
        if self._is_input and access == "write" and 0 <= inner < self.pages.length:
            return f"the input {self.name} was written, at byte {at}"
        return f"access out of bounds: {access} at byte {at} of {self.name}, which has {self.extent} bytes"
