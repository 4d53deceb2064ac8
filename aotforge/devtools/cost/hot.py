"""Which instructions keep a pipe busy longest: where to look in a kernel's text. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.devtools.cost.arch_rates import IssueModel
from aotforge.devtools.cost.rates import matrix_cycles, matrix_shape, vector_cycles
from aotforge.devtools.cost.work import traffic_kind
from aotforge.virtual_gpu.emulator.classes import InstructionClass, instruction_class
from aotforge.virtual_gpu.emulator.measure import SEGMENT, MeasuredLine, Measurement


@dataclass(frozen=True, kw_only=True)
class HotLine:
    """One instruction over a launch. `cycles` of its pipe in a unit; `conflicts`: bank cycles per conflict-free one (LDS), else 0;
    `used`: bytes asked for per byte of the segments touched (global memory), else 0.
    """

    address: int
    line: int
    text: str
    count: int
    pipe: str
    cycles: float
    conflicts: float
    used: float


def hot_lines(
    measured: Measurement, model: IssueModel, *, arch: str, simds: int, count: int
) -> tuple[HotLine, ...]:
    """The `count` busiest, longest first. Raises UnsupportedError for a matrix instruction of unknown shape."""
    found = [_hot(one, model, arch, simds) for one in measured.lines if one.count]
    return tuple(sorted(found, key=lambda hot: (-hot.cycles, hot.address))[:count])


def _hot(one: MeasuredLine, model: IssueModel, arch: str, simds: int) -> HotLine:
    pipe, cycles = _busy(one, model, arch, simds)
    return HotLine(
        address=one.line.address,
        line=one.line.number,
        text=" ".join(one.line.text.split()),
        count=one.count,
        pipe=pipe,
        cycles=cycles,
        conflicts=one.lds_cycles / one.lds_phases if one.lds_phases else 0.0,
        used=one.bytes / (SEGMENT * one.segments) if one.segments else 0.0,
    )


def _busy(one: MeasuredLine, model: IssueModel, arch: str, simds: int) -> tuple[str, float]:
    """Pipe and cycles, as the model counts them."""
    name = one.line.name
    if shape := matrix_shape(name):
        return "matrix", one.count * matrix_cycles(shape, arch) / simds
    kind = instruction_class(name)
    if kind is InstructionClass.VALU:
        return "vector", one.count * vector_cycles(name, model) / simds
    if kind is InstructionClass.LDS:
        return "LDS", one.lds_cycles / model.lds_pipes
    if kind is InstructionClass.MEMORY and traffic_kind(name):
        return "vector cache", SEGMENT * one.segments / model.l1
    return "scalar", one.count * model.salu
