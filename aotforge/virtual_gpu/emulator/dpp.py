"""Data-parallel primitives: which lane each lane reads. Rows have 16 lanes, banks 4.

Source: the guides' chapters on DPP; gfx9 and older know row_bcast and wave shifts, later chips row_share and row_xmask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import ModifierValue
from aotforge.virtual_gpu.emulator.modifiers import number

_ROW = 16

_Pattern = Callable[[int, int, int], int | None]
"""(row, place in the row, modifier's number) to the lane read."""


def _inside(row: int, place: int) -> int | None:
    return row * _ROW + place if 0 <= place < _ROW else None


_PATTERNS: Mapping[str, _Pattern] = {
    "row_shl": lambda row, place, n: _inside(row, place + n),
    "row_shr": lambda row, place, n: _inside(row, place - n),
    "row_ror": lambda row, place, n: row * _ROW + (place - n) % _ROW,
    "row_mirror": lambda row, place, n: row * _ROW + 15 - place,
    "row_half_mirror": lambda row, place, n: row * _ROW + (place & 8) + 7 - (place & 7),
    "row_newbcast": lambda row, place, n: row * _ROW + n,
    "row_share": lambda row, place, n: row * _ROW + n,
    "row_xmask": lambda row, place, n: row * _ROW + (place ^ n),
    # lane 15 of a row to the whole next row; lane 31 to rows 2 and 3
    "row_bcast": lambda row, place, n: (
        (row * _ROW - 1 if row else None) if n == 15 else (31 if row >= 2 else None)
    ),
    "wave_shr": lambda row, place, n: row * _ROW + place - 1 if row * _ROW + place else None,
    "wave_shl": lambda row, place, n: row * _ROW + place + 1,
    "wave_ror": lambda row, place, n: row * _ROW + place - 1,
    "wave_rol": lambda row, place, n: row * _ROW + place + 1,
}


def source_lanes(modifiers: Mapping[str, ModifierValue], lanes: int) -> list[int]:
    """The lane that each lane reads, -1 for none. Raises DecodeError unless the modifiers have exactly one known pattern."""
    quad = modifiers.get("quad_perm")
    named = [name for name in _PATTERNS if name in modifiers]
    if (quad is not None) + len(named) != 1:
        raise DecodeError("not exactly one DPP pattern")
    if quad is not None:
        if not isinstance(quad, tuple) or len(quad) != 4 or any(not 0 <= n < 4 for n in quad):
            raise DecodeError("quad_perm needs four numbers from 0 to 3")
        return [lane // 4 * 4 + int(quad[lane % 4]) for lane in range(lanes)]
    name = named[0]
    n = number(modifiers, name)
    if name == "row_bcast" and n not in {15, 31}:
        raise DecodeError(f"row_bcast:{n} is unknown")
    found = [_PATTERNS[name](lane // _ROW, lane % _ROW, n) for lane in range(lanes)]
    if name in {"wave_ror", "wave_rol"}:
        return [-1 if lane is None else lane % lanes for lane in found]
    return [lane if lane is not None and lane < lanes else -1 for lane in found]
