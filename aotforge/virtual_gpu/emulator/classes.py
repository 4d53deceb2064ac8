"""Which unit of a compute unit an instruction keeps busy, by its name: what instruction mixes and cost estimates are counted in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum


class InstructionClass(StrEnum):
    """Classes in the order in which reports show them. The value is the name in JSON."""

    MATRIX = "matrix"
    VALU = "valu"
    SALU = "salu"
    LDS = "lds"
    MEMORY = "memory"
    SCALAR_MEMORY = "scalar_memory"
    CONTROL = "control"
    OTHER = "other"

    @property
    def label(self) -> str:
        """For people."""
        return _LABELS[self]


_LABELS: Mapping[InstructionClass, str] = {
    InstructionClass.MATRIX: "matrix",
    InstructionClass.VALU: "VALU",
    InstructionClass.SALU: "SALU",
    InstructionClass.LDS: "LDS",
    InstructionClass.MEMORY: "global, buffer, scratch",
    InstructionClass.SCALAR_MEMORY: "scalar memory",
    InstructionClass.CONTROL: "branch, synchronisation",
    InstructionClass.OTHER: "other",
}

_RULES: tuple[tuple[str, InstructionClass], ...] = (
    # hints to the sequencer, caches, messages: no unit does work
    (
        r"[sv]_nop|s_delay_alu|s_clause|s_sleep\w*|s_setprio\w*|s_sendmsg\w*|s_code_end",
        InstructionClass.OTHER,
    ),
    (r"s_(set_)?inst_prefetch\w*|s_prefetch_\w+|s_(icache|dcache|gl1)_\w+", InstructionClass.OTHER),
    (r"buffer_(wbinvl1\w*|inv|wbl2|gl[01]_inv)|global_(inv|wb|wbinv)", InstructionClass.OTHER),
    # all matrix forms: MFMA and its sparse form, WMMA and its sparse form
    (r"v_(mfma|smfmac|wmma|swmmac)_\w+", InstructionClass.MATRIX),
    # moves to and from AGPRs, lane reads and dual-issue halves included; the transcendental unit is fed by the VALU
    (r"v_\w+", InstructionClass.VALU),
    # permutations go through the LDS crossbar without touching its memory
    (r"ds_\w+", InstructionClass.LDS),
    (r"(global|buffer|scratch|flat|tbuffer|image)_\w+", InstructionClass.MEMORY),
    (r"s_(buffer_)?(load|store|atomic)_\w+|s_mem(real)?time", InstructionClass.SCALAR_MEMORY),
    (r"s_(c?branch\w*|call\w*|setpc\w*|swappc\w*|rfe\w*|endpgm\w*|trap)", InstructionClass.CONTROL),
    (r"s_(barrier\w*|wait\w*|wakeup\w*)", InstructionClass.CONTROL),
    (r"s_\w+", InstructionClass.SALU),
)
"""The first pattern that a whole name matches decides."""
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _RULES)


def instruction_class(name: str) -> InstructionClass:
    """The class of an instruction, by the ISA guides' name without encoding suffix. OTHER for a name that no rule knows."""
    return next((kind for pattern, kind in _COMPILED if pattern.fullmatch(name)), InstructionClass.OTHER)


def instruction_mix(counts: Mapping[str, int]) -> dict[InstructionClass, int]:
    """Counts by class, every class in its order, from counts by mnemonic (`LaunchReport.counts`)."""
    totals: Counter[InstructionClass] = Counter()
    for name, count in counts.items():
        totals[instruction_class(name)] += count
    return {kind: totals[kind] for kind in InstructionClass}
