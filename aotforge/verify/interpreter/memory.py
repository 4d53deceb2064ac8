"""Memory of an interpreted kernel: numpy buffers, each access checked."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aotforge.errors import AccessError
from aotforge.verify.interpreter.number_formats import Array

BufferSpan = tuple[str, int, int, bool]
"""Name, first address, address after the last byte, writable."""


class Memory:
    """Named buffers and their address ranges. Reads and writes outside of them raise AccessError."""

    def __init__(self, buffers: Mapping[str, Array]) -> None:
        spans = sorted((*_span(buffer), name) for name, buffer in buffers.items() if buffer.size)
        self._names = [name for _, _, name in spans]
        self._starts = np.array([start for start, _, _ in spans], dtype=np.uint64)
        self._ends = np.array([end for _, end, _ in spans], dtype=np.uint64)
        self._buffers = dict(buffers)  # keeps them alive while addresses are in use

    def spans(self) -> list[BufferSpan]:
        """Every buffer that is not empty, in the order in which they were given."""
        return [(name, *_span(b), bool(b.flags.writeable)) for name, b in self._buffers.items() if b.size]

    def check(self, addresses: npt.NDArray[np.uint64], size: int, access: str) -> None:
        """Raises AccessError when an element of `size` bytes is not inside one buffer; `access`: "read" or "write"."""
        if not addresses.size:
            return
        if not self._names:
            raise AccessError(f"the kernel tried to {access} memory, and has no buffers")
        slot = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        outside = (slot < 0) | (addresses + np.uint64(size) > self._ends[np.maximum(slot, 0)])
        if outside.any():
            first = addresses[outside][0]
            near = int(np.argmin(np.abs(self._starts.astype(np.int64) - np.int64(first))))
            size_near = int(self._ends[near]) - int(self._starts[near])
            offset = int(first) - int(self._starts[near])
            raise AccessError(
                f"the kernel tried to {access} {size} bytes outside its buffers, "
                f"{int(outside.sum())} of {addresses.size} lanes",
                cause=f"the first address is {offset:+d} bytes from the start of {self._names[near]}, "
                f"which has {size_near} bytes",
                hint="look for a missing mask, or a stride that does not belong to this tensor",
            )


def _span(buffer: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(buffer)
    return int(low), int(high)
