"""Classes of instructions by the unit that executes them, for instruction mixes and cost estimates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum


class InstructionClass(StrEnum):
    """Classes in the order of reports. The value is the name in JSON, `label` that in reports."""

    label: str

    def __new__(cls, value: str, label: str) -> InstructionClass:
        """A member with its label."""
        member = str.__new__(cls, value)
        member._value_, member.label = value, label
        return member

    MATRIX = "matrix", "matrix"
    VALU = "valu", "VALU"
    SALU = "salu", "SALU"
    LDS = "lds", "LDS"
    MEMORY = "memory", "global, buffer, scratch"
    SCALAR_MEMORY = "scalar_memory", "scalar memory"
    CONTROL = "control", "branch, synchronisation"
    OTHER = "other", "other"


_RULES = {
    # hints to the sequencer, caches, messages: no unit is busy
    InstructionClass.OTHER: r"[sv]_nop|s_delay_alu|s_clause|s_sleep\w*|s_setprio\w*|s_sendmsg\w*|s_code_end"
    r"|s_(set_)?inst_prefetch\w*|s_prefetch_\w+|s_(icache|dcache|gl1)_\w+"
    r"|buffer_(wbinvl1\w*|inv|invl2|wbl2|gl[01]_inv)|global_(inv|wb|wbinv)",
    InstructionClass.MATRIX: r"v_(mfma|smfmac|wmma|swmmac)_\w+",
    # moves to and from AGPRs, lane reads, dual-issue halves, transcendental operations included
    InstructionClass.VALU: r"v_\w+",
    # permutations use the LDS crossbar without its memory
    InstructionClass.LDS: r"ds_\w+",
    InstructionClass.MEMORY: r"(global|buffer|scratch|flat|tbuffer|image)_\w+",
    InstructionClass.SCALAR_MEMORY: r"s_(buffer_)?(load|store|atomic)_\w+|s_mem(real)?time",
    InstructionClass.CONTROL: r"s_(c?branch\w*|call\w*|setpc\w*|swappc\w*|rfe\w*|endpgm\w*|trap)"
    r"|s_(barrier\w*|wait\w*|wakeup\w*)",
    InstructionClass.SALU: r"s_\w+",
}
"""The first pattern that matches all of a name decides."""


def instruction_class(name: str) -> InstructionClass:
    """The class of an instruction, by its name without encoding suffix; OTHER for an unknown one."""
    return next((kind for kind, one in _RULES.items() if re.fullmatch(one, name)), InstructionClass.OTHER)


def instruction_mix(counts: Mapping[str, int]) -> dict[InstructionClass, int]:
    """Counts by class, every class in its order, from counts by mnemonic (`LaunchReport.counts`)."""
    totals: Counter[InstructionClass] = Counter()
    for name, count in counts.items():
        totals[instruction_class(name)] += count
    return {kind: totals[kind] for kind in InstructionClass}
