"""Data-parallel primitives: which lane each lane reads. Rows have 16 lanes, banks 4.

Source: the guides' chapters on DPP; gfx9 and older know row_bcast and wave shifts, later archs row_share and row_xmask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import ModifierValue
from aotforge.virtual_gpu.emulator.modifiers import number

_NONE = -1


def _shifted(lane: int, n: int) -> int:
    """`n` lanes further in the same row."""
    return lane + n if 0 <= lane % 16 + n < 16 else _NONE


def _row_broadcast(lane: int, n: int) -> int:
    """Lane 15 of a row to the next row; lane 31 to rows 2 and 3."""
    if n == 15:
        return lane // 16 * 16 - 1
    return 31 if lane >= 32 else _NONE


_PATTERNS: Mapping[str, Callable[[int, int, int], int]] = {
    "row_shl": lambda lane, n, lanes: _shifted(lane, n),
    "row_shr": lambda lane, n, lanes: _shifted(lane, -n),
    "row_ror": lambda lane, n, lanes: lane // 16 * 16 + (lane - n) % 16,
    "row_mirror": lambda lane, n, lanes: lane ^ 15,
    "row_half_mirror": lambda lane, n, lanes: lane ^ 7,
    "row_newbcast": lambda lane, n, lanes: lane // 16 * 16 + n,
    "row_share": lambda lane, n, lanes: lane // 16 * 16 + n,
    "row_xmask": lambda lane, n, lanes: lane // 16 * 16 + (lane % 16 ^ n),
    "row_bcast": lambda lane, n, lanes: _row_broadcast(lane, n),
    "wave_shr": lambda lane, n, lanes: lane - 1,
    "wave_shl": lambda lane, n, lanes: lane + 1,
    "wave_ror": lambda lane, n, lanes: (lane - 1) % lanes,
    "wave_rol": lambda lane, n, lanes: (lane + 1) % lanes,
}
"""(lane, modifier's number, lanes of the wave) to the lane read; one outside of the wave: none."""


def source_lanes(modifiers: Mapping[str, ModifierValue], lanes: int) -> list[int]:
    """The lane that each lane reads, -1 for none. Raises DecodeError unless the modifiers have exactly one known pattern."""
    named = [name for name in (*_PATTERNS, "quad_perm") if name in modifiers]
    if len(named) != 1:
        raise DecodeError("not exactly one DPP pattern")
    if named == ["quad_perm"]:
        quad = modifiers["quad_perm"]
        if not isinstance(quad, tuple) or len(quad) != 4 or any(not 0 <= n < 4 for n in quad):
            raise DecodeError("quad_perm needs four numbers from 0 to 3")
        return [lane // 4 * 4 + int(quad[lane % 4]) for lane in range(lanes)]
    n = number(modifiers, named[0])
    if named == ["row_bcast"] and n not in {15, 31}:
        raise DecodeError(f"row_bcast:{n} is unknown")
    found = [_PATTERNS[named[0]](lane, n, lanes) for lane in range(lanes)]
    return [lane if 0 <= lane < lanes else _NONE for lane in found]
