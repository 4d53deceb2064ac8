"""Address space of a launch: the same for every process, whatever addresses the host gave its buffers.

Each buffer has a slot of its own, so that an access beyond one reaches no other, and crosses a multiple of 4
GiB, so that addresses need the carry into their high word. Faults, traces and verdicts are therefore the same
in every process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vgpu.emulator import native
from vgpu.errors import UnsupportedError
from vgpu.memory import BufferSpan, Memory

KERNARG_BASE, CODE_BASE, HOST_CALLS_BASE = 1 << 43, 1 << 44, 1 << 42
_FIRST, _SLOTS = 0x2000_0000_0000, 512
_SLOT = 19 << 32
"""No distance of two slots is a power of two: one wrong bit of an address does not lead to another buffer."""
_LINE = 64
_ALIGNED = 16
"""The host aligns buffers to this many bytes; addresses keep what a view has beyond."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """Bytes of the host at an address of the kernel."""

    name: str
    low: int
    size: int
    writable: bool
    host: int

    @classmethod
    def of(cls, array: npt.NDArray[np.uint8], low: int, *, writable: bool = False) -> Region:
        """An array of bytes at an address."""
        return cls(name="", low=low, size=array.nbytes, writable=writable, host=array.ctypes.data)

    @property
    def high(self) -> int:
        """The address after the last byte."""
        return self.low + self.size

    def native_range(self, unset: int | None = None) -> native.Range:
        """The interpreter's structure. `unset`: the address of a state per byte."""
        to_host = (self.host - self.low) % (1 << 64)
        return native.Range(self.low, self.high, to_host, int(self.writable), 0, unset)


class AddressSpace:
    """The buffers at fixed addresses, in the order of `Memory`. Raises UnsupportedError for too many."""

    def __init__(self, memory: Memory) -> None:
        spans = memory.spans()
        self._blocks = _blocks(spans)
        if len(self._blocks) > _SLOTS:
            raise UnsupportedError(
                f"a launch with {len(self._blocks)} buffers: at most {_SLOTS} are possible"
            )
        self.regions = tuple(
            Region(
                name=name, low=self.address(low), size=high - low, writable=writable, host=low
            )
            for name, low, high, writable in spans
        )  # fmt: skip

    def address(self, pointer: int) -> int:
        """The kernel's address of the host's byte at `pointer`; one outside of every buffer stays as it
        is."""
        for block in self._blocks:
            if block.host <= pointer < block.host + block.size:
                return block.low + pointer - block.host
        return pointer

    def spans(self) -> list[BufferSpan]:
        """As `Memory.spans`, at the kernel's addresses."""
        return [(r.name, r.low, r.high, r.writable) for r in self.regions]

    def host_regions(self) -> list[Region]:
        """The buffers at the addresses that they have on the host."""
        return [replace(region, low=region.host) for region in self.regions]

    def read(self, first: int, end: int) -> bytes | None:
        """The bytes of a buffer, or None when no buffer has all of them."""
        for region in self.regions:
            if region.low <= first <= end <= region.high:
                return ctypes.string_at(region.host + first - region.low, end - first)
        return None


def _blocks(spans: Sequence[BufferSpan]) -> list[Region]:
    """The host's bytes without overlaps, numbered in the order of the first buffer inside."""
    merged: list[tuple[int, int]] = []
    for _, low, high, _ in sorted(spans, key=lambda span: span[1]):
        if merged and low < merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    order = {low: number for number, (_, low, *_) in reversed(list(enumerate(spans)))}
    merged.sort(key=lambda block: min(n for low, n in order.items() if block[0] <= low < block[1]))
    return [
        Region(name="", low=_place(slot, low, high - low), size=high - low, writable=True, host=low)
        for slot, (low, high) in enumerate(merged)
    ]


def _place(slot: int, host: int, size: int) -> int:
    """The address of a block: its middle is near a multiple of 4 GiB."""
    before = (size // 2 + _LINE - 1) // _LINE * _LINE
    return _FIRST + slot * _SLOT + (8 << 32) - before + host % _ALIGNED
