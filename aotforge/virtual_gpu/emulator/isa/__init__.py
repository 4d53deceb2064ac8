"""The instruction table: every instruction that the emulator executes, by the ISA guides' name; any other one is refused.

Sources: AMD's instruction set architecture guides for MI100, MI200, MI300, RDNA3 and RDNA4.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aotforge.virtual_gpu.emulator.isa import (
    comparison,
    control,
    cross_lane,
    memory,
    packed,
    scalar,
    vector_float,
    vector_integer,
)
from aotforge.virtual_gpu.emulator.isa.entry import Entry, merged

INSTRUCTIONS: Mapping[str, Entry] = MappingProxyType(
    merged(
        scalar.TABLE,
        control.CONTROL,
        vector_integer.TABLE,
        vector_float.TABLE,
        comparison.TABLE,
        packed.TABLE,
        memory.TABLE,
        cross_lane.LANES,
        cross_lane.MATRIX,
        control.NO_OPS,
    )
)
