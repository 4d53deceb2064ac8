"""Sum of a measured launch: the input of the cost model. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.devtools.cost.rates import matrix_shape, waits_of
from aotforge.virtual_gpu.emulator.classes import InstructionClass, instruction_class
from aotforge.virtual_gpu.emulator.measure import SEGMENT, MeasuredLine, Measurement


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One kind of access. `bytes` as lanes request them, `segments` of 64 bytes (global memory), `cycles` and `phases` of LDS
    banks with and without conflicts.
    """

    instructions: int = 0
    bytes: int = 0
    segments: int = 0
    cycles: int = 0
    phases: int = 0
    lanes: int = 0

    def plus(self, line: MeasuredLine) -> Traffic:
        """With one more instruction's executions."""
        return Traffic(
            instructions=self.instructions + line.count,
            bytes=self.bytes + line.bytes,
            segments=self.segments + line.segments,
            cycles=self.cycles + line.lds_cycles,
            phases=self.phases + line.lds_phases,
            lanes=self.lanes + line.lanes,
        )

    @property
    def used(self) -> float:
        """Bytes requested per byte of the touched segments."""
        return self.bytes / (SEGMENT * self.segments) if self.segments else 0.0

    @property
    def conflicts(self) -> float:
        """Bank cycles per cycle without conflicts."""
        return self.cycles / self.phases if self.phases else 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """A launch. `names`: wave-instructions by name, a dual-issue pair once, by its first; `vector_lanes`: lanes of VALU
    instructions; `flops` of matrix instructions; `memory_waits`, `local_waits` executed; `loaded` and `stored` bytes of global
    memory touched at all.
    """

    workgroups: int
    waves: int
    wavefront: int
    names: Mapping[str, int]
    traffic: Mapping[str, Traffic]
    vector_lanes: int
    flops: int
    memory_waits: int
    local_waits: int
    loaded: int
    stored: int

    @property
    def instructions(self) -> int:
        """Of all waves."""
        return sum(self.names.values())

    @property
    def classes(self) -> Mapping[InstructionClass, int]:
        """Counts by class, every class in its order."""
        totals: Counter[InstructionClass] = Counter()
        for name, count in self.names.items():
            totals[instruction_class(name)] += count
        return {kind: totals[kind] for kind in InstructionClass}

    @property
    def matrix_share(self) -> float:
        """Share of matrix instructions."""
        return self.classes[InstructionClass.MATRIX] / self.instructions if self.instructions else 0.0

    @property
    def lanes_on(self) -> float:
        """Share of lanes that are on in VALU instructions."""
        possible = self.classes[InstructionClass.VALU] * self.wavefront
        return self.vector_lanes / possible if possible else 0.0


KINDS = (
    "global loads",
    "global stores",
    "global atomics",
    "scratch",
    "LDS loads",
    "LDS stores",
    "LDS atomics",
    "scalar loads",
)


def add_up(measured: Measurement, *, workgroups: int, waves: int, wavefront: int) -> Work:
    """`waves` of a workgroup, `wavefront` lanes each. Raises UnsupportedError for a matrix instruction of unknown shape."""
    names: Counter[str] = Counter()
    traffic = dict.fromkeys(KINDS, Traffic())
    lanes = flops = memory_waits = local_waits = 0
    before = -1
    for one in measured.lines:
        name, first = one.line.name, one.line.address != before
        before = one.line.address
        if not one.count:
            continue
        if first:
            names[name] += one.count
        if shape := matrix_shape(name):
            flops += shape.flops * one.count
        elif first and instruction_class(name) is InstructionClass.VALU:
            lanes += one.lanes
        if kind := traffic_kind(name):
            traffic[kind] = traffic[kind].plus(one)
        memory, local = waits_of(one.line.text)
        memory_waits += one.count * memory
        local_waits += one.count * local
    return Work(
        workgroups=workgroups,
        waves=waves,
        wavefront=wavefront,
        names=dict(names.most_common()),
        traffic=traffic,
        vector_lanes=lanes,
        flops=flops,
        memory_waits=memory_waits,
        local_waits=local_waits,
        loaded=measured.loaded,
        stored=measured.stored,
    )


def is_permute(name: str) -> bool:
    """Whether an LDS instruction permutes lanes: it moves no bytes of LDS."""
    return "permute" in name or "swizzle" in name


def traffic_kind(name: str) -> str | None:
    """Which of KINDS an instruction belongs to; None when it moves nothing."""
    kind = instruction_class(name)
    if kind is InstructionClass.SCALAR_MEMORY:
        return "scalar loads" if "load" in name else None
    if kind is InstructionClass.LDS and not is_permute(name):
        verbs = {"read": "loads", "load": "loads", "write": "stores", "store": "stores"}
        return f"LDS {next((verb for part, verb in verbs.items() if part in name), 'atomics')}"
    if kind is InstructionClass.MEMORY:
        if name.startswith("scratch"):
            return "scratch"
        return f"global {'atomics' if 'atomic' in name else 'stores' if 'store' in name else 'loads'}"
    return None
