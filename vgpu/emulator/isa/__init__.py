"""The instruction table: every instruction that the emulator executes, by the ISA guides' name.

Any other instruction is refused.
Sources: AMD's instruction set architecture guides for MI100, MI200, MI300, RDNA3 and RDNA4.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from vgpu.emulator.isa import memory, scalar, vector, wave_ops
from vgpu.emulator.isa.entry import Entry, merged

_WAVE = (wave_ops.LANES, wave_ops.MATRIX, wave_ops.NO_OPS, wave_ops.MESSAGE, wave_ops.MODE)
INSTRUCTIONS: Mapping[str, Entry] = MappingProxyType(
    merged(scalar.TABLE, wave_ops.CONTROL, vector.TABLE, memory.TABLE, *_WAVE)
)


def approximations(names: Iterable[str]) -> dict[str, str]:
    """Instructions of these whose last bits may differ from hardware's, sorted, with the reason."""
    return {name: why for name in sorted(set(names)) if (why := INSTRUCTIONS[name].approximated)}
