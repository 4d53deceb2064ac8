"""Data races in global memory, between waves of a launch: what the variant of global_races.h gets."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterable, Sequence
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from vgpu.emulator.address_space import AddressSpace
from vgpu.emulator.decoded import Line
from vgpu.emulator.targets import EmulatedTarget
from vgpu.errors import UnsupportedError

_CELL = 10  # words
_MOST_WAVES = 1 << 18
_NOT_LOOKED_AT = 0xFFFFFFFFFFFFFFFF
_BYTES = re.compile(r"_(?:[us]?byte|[ui]8|b8|d16_(?:hi_)?[ui]8)(?:_|$)")
_SHORTS = re.compile(r"_(?:[us]?short|[ui]16|b16|d16)(?:_|$)")


class _Races(ctypes.Structure):
    """Races of global_races.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("cells", "first")),
        ("unit", c_uint64),
        *((name, c_uint32) for name in ("total", "group_in_order")),
        *((name, c_void_p) for name in ("parties", "syncs", "snapshots")),
        ("used", c_uint64),
        *((name, c_uint32) for name in ("begin", "end", "wide", "pad")),
        ("effects", c_void_p),
    ]


class RaceCheck:
    """One launch's check: cells for the units of its buffers. Raises UnsupportedError for too many waves."""

    def __init__(
        self, lines: Iterable[Line], target: EmulatedTarget, space: AddressSpace, ranges: Sequence[Any]
    ) -> None:
        unit = _smallest_access(lines)
        firsts, count = _first_cells(space, ranges, unit)
        self._cells = np.zeros(_CELL * count, dtype=np.uint32)
        self._first = np.array(firsts, dtype=np.uint64)
        self._races = _Races(
            cells=self._cells.ctypes.data,
            first=self._first.ctypes.data,
            unit=unit,
            group_in_order=target.generation == 9,
        )

    def observer(self, grid: tuple[int, int, int], waves: int) -> int:
        """The structure's address, for a launch of workgroups of some waves."""
        total = math.prod(grid) * waves
        if total > _MOST_WAVES:
            raise UnsupportedError(
                f"the check of races in global memory follows {_MOST_WAVES} waves, not {total}",
                hint="launch a smaller grid",
            )
        self._races.total = total
        return ctypes.addressof(self._races)


def _smallest_access(lines: Iterable[Line]) -> int:
    """Bytes of the smallest load or store: threads may own neighbours of that size."""
    names = [line.name for line in lines if line.name.startswith(("global_", "buffer_", "flat_", "s_load_"))]
    return next((size for size, kind in ((1, _BYTES), (2, _SHORTS)) if any(map(kind.search, names))), 4)


def _first_cells(space: AddressSpace, ranges: Sequence[Any], unit: int) -> tuple[list[int], int]:
    """Per range: what the number of a unit in the host's memory lacks to be a cell's; and how many cells.
    Buffers are there at two addresses, and may overlap."""
    spans = sorted({(r.host // unit, (r.host + r.size - 1) // unit + 1) for r in space.regions})
    blocks: list[list[int]] = []  # low, high, first cell
    count = 0
    for low, high in spans:
        if not blocks or low >= blocks[-1][1]:
            blocks.append([low, low, count])
        count += max(0, high - blocks[-1][1])
        blocks[-1][1] = max(blocks[-1][1], high)
    hosts = {r.host for r in space.regions}
    firsts = []
    for one in ranges:
        host = (one.low + one.to_host) % (1 << 64)
        block = next((b for b in blocks if b[0] <= host // unit < b[1]), None) if host in hosts else None
        firsts.append((block[2] - block[0]) % (1 << 64) if block else _NOT_LOOKED_AT)
    return firsts, count
