"""Memory of a launch: named numpy arrays at the addresses that they have in this process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

BufferSpan = tuple[str, int, int, bool]
"""Name, first address, address after the last byte, writable."""


class Memory:
    """The buffers that a kernel may access."""

    def __init__(self, buffers: Mapping[str, npt.NDArray[Any]]) -> None:
        self._buffers = dict(buffers)  # keeps them alive while addresses are in use

    def spans(self) -> list[BufferSpan]:
        """Every buffer that is not empty, in the order in which they were given."""
        return [(name, *_span(b), bool(b.flags.writeable)) for name, b in self._buffers.items() if b.size]


def _span(buffer: npt.NDArray[Any]) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(buffer)
    return int(low), int(high)
