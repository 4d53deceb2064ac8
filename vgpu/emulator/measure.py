"""Traffic through LDS and global memory per instruction of a launch; see `native/measure.h`."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator.decoded import Line

SEGMENT = 64
"""Bytes of global memory that are counted together."""
COLUMNS = ("lanes", "bytes", "segments", "lds_cycles", "lds_phases")


class _Measure(ctypes.Structure):
    """The structure of measure.h."""

    _fields_ = [
        ("rows", c_void_p),
        ("touched", c_void_p * 2),
        ("first", POINTER(c_uint64)),
        ("banks", c_uint32),
        ("swizzled", c_uint32),
    ]


@dataclass(frozen=True, kw_only=True)
class Banks:
    """LDS: its banks of 4 bytes, and whether reads of 16 bytes have CDNA's order of lanes."""

    count: int = 32
    swizzled: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredLine:
    """An instruction over a launch: `count` executions by waves, `lanes` and requested `bytes` summed over
    them; `segments` of 64 bytes, distinct in an execution; cycles of LDS banks, of which `lds_phases` would
    remain without conflicts."""

    line: Line
    count: int
    lanes: int
    bytes: int
    segments: int
    lds_cycles: int
    lds_phases: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """`lines` as in `Program.lines`; bytes of global memory that are touched at all, in segments."""

    lines: tuple[MeasuredLine, ...]
    loaded: int
    stored: int


class Meter:
    """Measures one launch; `Program.launch` fills it. `banks` are those of the target."""

    def __init__(self, banks: Banks) -> None:
        self._banks = banks
        self._rows: list[npt.NDArray[np.uint64]] = []
        self._touched: list[npt.NDArray[np.uint8]] = []
        self._keep: list[Any] = []
        self.result: Measurement | None = None

    def prepare(self, ranges: Sequence[Any]) -> None:
        """Before a launch: the spans of memory that it may touch."""
        sizes = [int(r.high - 1) // SEGMENT - int(r.low) // SEGMENT + 1 for r in ranges]
        self._first = (c_uint64 * len(sizes))(*[sum(sizes[:i]) for i in range(len(sizes))])
        self._touched = [np.zeros(sum(sizes) // 8 + 1, dtype=np.uint8) for _ in range(2)]
        self._rows, self._keep, self.result = [], [], None

    def observer(self, length: int) -> int:
        """The address of one thread's structure, for a program of `length` instructions."""
        rows = np.zeros((length, len(COLUMNS)), dtype=np.uint64)
        touched = (c_void_p * 2)(*[bits.ctypes.data for bits in self._touched])
        made = _Measure(rows.ctypes.data, touched, self._first, self._banks.count, self._banks.swizzled)
        self._rows.append(rows)
        self._keep.append(made)
        return ctypes.addressof(made)

    def finish(self, lines: Sequence[Line], counts: npt.NDArray[np.uint64]) -> None:
        """After a launch."""
        total: npt.NDArray[np.uint64] = np.stack(self._rows).sum(axis=0, dtype=np.uint64)
        self.result = Measurement(
            lines=tuple(
                MeasuredLine(line=line, count=int(count), **dict(zip(COLUMNS, map(int, row), strict=True)))
                for line, count, row in zip(lines, counts, total, strict=True)
            ),
            loaded=SEGMENT * int(np.unpackbits(self._touched[0]).sum()),
            stored=SEGMENT * int(np.unpackbits(self._touched[1]).sum()),
        )
