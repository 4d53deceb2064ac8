"""What the emulator has to know about a chip beyond its instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.errors import UnknownNameError, suggest


@dataclass(frozen=True, kw_only=True)
class EmulatedChip:
    """`keeps_high_half`: 16-bit results leave the register's high half (gfx10 and later; before, it becomes zero).
    `vgpr_granule`: registers per unit of the descriptor's count; `accumulators`: "none", "split" (AGPRs in a file of their own)
    or "unified". `ids_in_ttmp`: workgroup ids come in trap registers.
    """

    arch: str
    lanes: int
    keeps_high_half: bool
    vgpr_granule: int
    accumulators: str
    packed_ids: bool
    ids_in_ttmp: bool = False
    gfx12: bool = False


def _cdna(arch: str) -> EmulatedChip:
    first = arch == "gfx908"
    return EmulatedChip(
        arch=arch,
        lanes=64,
        keeps_high_half=False,
        vgpr_granule=4 if first else 8,
        accumulators="split" if first else "unified",
        packed_ids=not first,
    )


def _rdna(arch: str) -> EmulatedChip:
    gfx12 = arch.startswith("gfx12")
    return EmulatedChip(
        arch=arch,
        lanes=32,
        keeps_high_half=True,
        vgpr_granule=8,
        accumulators="none",
        packed_ids=True,
        ids_in_ttmp=gfx12,
        gfx12=gfx12,
    )


_CDNA = ("gfx908", "gfx90a", "gfx942", "gfx950")
_RDNA = (
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
    *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    *("gfx1200", "gfx1201"),
)

CHIPS: Mapping[str, EmulatedChip] = {chip.arch: chip for chip in (*map(_cdna, _CDNA), *map(_rdna, _RDNA))}


def chip_named(arch: str) -> EmulatedChip:
    """The chip of a name. Raises UnknownNameError."""
    if arch not in CHIPS:
        raise UnknownNameError(f"the emulator does not know the chip {arch}", hint=suggest(arch, CHIPS))
    return CHIPS[arch]
