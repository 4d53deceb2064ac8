"""Sum of a measured launch: the input of the cost model. Pure."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from aotforge.devtools.cost.rates import IssueModel, matrix_shape
from vgpu.emulator.classes import InstructionClass, instruction_class, instruction_mix
from vgpu.emulator.measure import SEGMENT, MeasuredLine, Measurement

_VERBS = ("loads", "stores", "atomics")
KINDS = (
    *(f"global {verb}" for verb in _VERBS),
    "scratch",
    *(f"LDS {verb}" for verb in _VERBS),
    "scalar loads",
)


@dataclass(frozen=True)
class Traffic:
    """One kind of access. `bytes` as lanes request them, `segments` of 64 bytes (global memory), `cycles` and
    `phases` of LDS banks with and without conflicts."""

    instructions: int = 0
    bytes: int = 0
    segments: int = 0
    cycles: int = 0
    phases: int = 0
    lanes: int = 0

    def plus(self, line: MeasuredLine) -> Traffic:
        """With one more instruction's executions."""
        more = (line.count, line.bytes, line.segments, line.lds_cycles, line.lds_phases, line.lanes)
        return Traffic(*map(operator.add, astuple(self), more))

    def port_bytes(self, kind: str, wavefront: int) -> int:
        """Bytes on the busier way between LDS and SIMDs: addresses and stored data share one."""
        addresses = self.instructions * 4 * wavefront
        return max(addresses, self.bytes) if kind == "LDS loads" else addresses + self.bytes

    def cache_cycles(self, kind: str, wavefront: int, model: IssueModel) -> float:
        """Of the vector cache: 64-byte segments through it, but at least the addresses."""
        addresses = self.instructions * wavefront / model.address_lanes / model.cus_per_unit
        data = self.bytes if kind == "scratch" else self.segments * SEGMENT
        return max(addresses, data / model.l1)

    @property
    def used(self) -> float:
        """Bytes requested per byte of the touched segments."""
        return self.bytes / (SEGMENT * self.segments) if self.segments else 0.0

    @property
    def conflicts(self) -> float:
        """Bank cycles per cycle without conflicts."""
        return self.cycles / self.phases if self.phases else 0.0


@dataclass(kw_only=True)
class Work:
    """A launch. `names`: wave-instructions by name, a dual-issue pair once, by its first; `vector_lanes`:
    lanes of VALU instructions; `flops` of matrix instructions; `loaded` and `stored` bytes of global memory
    touched at all."""

    workgroups: int
    waves: int
    wavefront: int
    names: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=lambda: dict.fromkeys(KINDS, Traffic()))
    vector_lanes: int = 0
    flops: int = 0
    loaded: int = 0
    stored: int = 0

    @property
    def instructions(self) -> int:
        """Of all waves."""
        return sum(self.names.values())

    @property
    def classes(self) -> Mapping[InstructionClass, int]:
        """Counts by class, every class in its order."""
        return instruction_mix(self.names)

    @property
    def matrix_share(self) -> float:
        """Share of matrix instructions."""
        return self.classes[InstructionClass.MATRIX] / self.instructions if self.instructions else 0.0

    @property
    def lanes_on(self) -> float:
        """Share of lanes that are on in VALU instructions."""
        possible = self.classes[InstructionClass.VALU] * self.wavefront
        return self.vector_lanes / possible if possible else 0.0


def add_up(measured: Measurement, *, workgroups: int, waves: int, wavefront: int) -> Work:
    """`waves` of a workgroup, `wavefront` lanes each. Raises UnsupportedError for a matrix instruction of
    unknown shape."""
    work = Work(workgroups=workgroups, waves=waves, wavefront=wavefront)
    work.loaded, work.stored = measured.loaded, measured.stored
    names: Counter[str] = Counter()
    before = -1
    for measured_line in measured.lines:
        name, first = measured_line.line.name, measured_line.line.address != before
        before = measured_line.line.address
        if not measured_line.count:
            continue
        if first:
            names[name] += measured_line.count
        if shape := matrix_shape(name):
            work.flops += shape.flops * measured_line.count
        elif first and instruction_class(name) is InstructionClass.VALU:
            work.vector_lanes += measured_line.lanes
        if kind := traffic_kind(name):
            work.traffic[kind] = work.traffic[kind].plus(measured_line)
    work.names = dict(names.most_common())
    return work


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
