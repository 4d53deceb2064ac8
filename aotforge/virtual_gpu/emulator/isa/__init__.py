"""The instruction table: every instruction that the emulator executes, by the ISA guides' name. A name that is not here is
refused. Sources: AMD's instruction set architecture guides for MI100, MI200, MI300, RDNA3 and RDNA4.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aotforge.virtual_gpu.emulator.isa import (
    comparison,
    lanes,
    matrix,
    memory,
    packed,
    scalar,
    vector_float,
    vector_integer,
)
from aotforge.virtual_gpu.emulator.isa import (
    no_ops as idle,
)
from aotforge.virtual_gpu.emulator.isa.entry import Entry, merged

INSTRUCTIONS: Mapping[str, Entry] = MappingProxyType(
    merged(
        scalar.TABLE,
        vector_integer.TABLE,
        vector_float.TABLE,
        comparison.TABLE,
        packed.TABLE,
        memory.TABLE,
        lanes.TABLE,
        matrix.TABLE,
        idle.TABLE,
    )
)

__all__ = ["INSTRUCTIONS", "Entry"]
