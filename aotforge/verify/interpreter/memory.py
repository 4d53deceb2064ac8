"""Checks of an interpreted kernel's accesses."""

import numpy as np
import numpy.typing as npt

from aotforge.errors import ExecutionError
from vgpu.memory import Memory


class AccessCheck:
    """The address ranges of a memory's buffers, against which accesses are checked."""

    def __init__(self, memory: Memory) -> None:
        spans = sorted((low, high, name) for name, low, high, _ in memory.spans())
        self._names = [name for _, _, name in spans]
        self._starts = np.array([start for start, _, _ in spans], dtype=np.uint64)
        self._ends = np.array([end for _, end, _ in spans], dtype=np.uint64)

    def __call__(self, addresses: npt.NDArray[np.uint64], size: int, access: str) -> None:
        """Raises ExecutionError for elements of `size` bytes in no buffer; `access`: "read" or "write"."""
        if not addresses.size:
            return
        if not self._names:
            raise ExecutionError(f"the kernel tried to {access} memory, and has no buffers")
        slot = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        outside = (slot < 0) | (addresses + np.uint64(size) > self._ends[np.maximum(slot, 0)])
        if outside.any():
            first = addresses[outside][0]
            near = int(np.argmin(np.abs(self._starts.astype(np.int64) - np.int64(first))))
            size_near = int(self._ends[near]) - int(self._starts[near])
            offset = int(first) - int(self._starts[near])
            raise ExecutionError(
                f"the kernel tried to {access} {size} bytes outside its buffers, "
                f"{int(outside.sum())} of {addresses.size} lanes",
                cause=f"the first address is {offset:+d} bytes from the start of {self._names[near]}, "
                f"which has {size_near} bytes",
                hint="look for a missing mask, or a stride that does not belong to this tensor",
            )
