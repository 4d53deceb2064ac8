"""Estimate of cycles from a launch's work and an arch's rates (docs/virtual-gpu-tools.md). Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.devtools.cost.rates import IssueModel, matrix_cycles, matrix_shape, vector_cycles
from aotforge.devtools.cost.timeline import Timeline
from aotforge.devtools.cost.work import Traffic, Work, is_permute, traffic_kind
from vgpu.emulator.classes import InstructionClass, instruction_class
from vgpu.emulator.measure import SEGMENT, MeasuredLine, Measurement

_LATENCY = "latency"
_BUSY = 0.75
"""Share of the time that a pipe is busy, from which on it counts as what decides."""
_SCALAR = {InstructionClass.SALU, InstructionClass.SCALAR_MEMORY, InstructionClass.CONTROL}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Cycles. `pipes`: what a workgroup keeps each pipe of its unit busy for, when the unit is full; `wave`:
    its waves on one SIMD that has no others; `resident`: workgroups on a unit at once; `workgroup`: per
    workgroup on a full unit; `alone`: one workgroup on an empty one; `launch`: all of them on all units.
    `bound`: what decides `workgroup`. `utilization`: of the unit's matrix peak, 0 to 1."""

    pipes: Mapping[str, float]
    wave: float
    resident: float
    workgroup: float
    alone: float
    launch: float
    microseconds: float
    bound: str
    utilization: float


def estimate(work: Work, model: IssueModel, times: Timeline) -> Estimate:
    """`times`: of the launch's waves, to which the bandwidth of the memory is added here."""
    groups, simds = work.workgroups, model.simds
    vector, matrix, scalar = _issued(work, model)
    shared = {
        "scalar": scalar / groups,
        "LDS": _local(work, model) / groups,
        "vector cache": _vector_memory(work, model) / groups,
        "memory": (work.loaded + work.stored) / groups / (model.memory / model.units),
    }
    per_simd = {"vector": vector / groups, "matrix": matrix / groups}
    if not model.matrix_apart:
        per_simd = {"vector": (vector + matrix) / groups}
    pipes = {name: cycles / simds for name, cycles in per_simd.items()} | shared
    longest = max(pipes, key=lambda name: pipes[name])
    used = min(simds, work.waves)
    busy_alone = max(
        [cycles / used for cycles in per_simd.values()] + [c for n, c in shared.items() if n != "memory"]
    )
    steady = max(pipes[longest], times.workgroup)
    alone = max(busy_alone, times.wave)
    rounds = math.ceil(groups / model.units)
    memory = (work.loaded + work.stored) / model.memory
    launch = max(alone, rounds * steady if rounds > 1 else 0.0, memory)
    peak = simds * _peak(work, model)
    return Estimate(
        pipes=pipes,
        wave=times.wave,
        resident=times.resident,
        workgroup=steady,
        alone=alone,
        launch=launch,
        microseconds=launch / model.clock_mhz,
        bound=longest if pipes[longest] >= _BUSY * steady else _LATENCY,
        utilization=work.flops / groups / steady / peak if peak and steady else 0.0,
    )


def _issued(work: Work, model: IssueModel) -> tuple[float, float, float]:
    """Over the launch: cycles of vector units, of matrix hardware, of scalar hardware."""
    vector = matrix = scalar = 0.0
    for name, count in work.names.items():
        kind = instruction_class(name)
        if shape := matrix_shape(name):
            matrix += count * matrix_cycles(shape, model)
            vector += count * model.issue if model.matrix_apart else 0
        elif kind is InstructionClass.VALU:
            vector += count * vector_cycles(name, model)
        elif kind in _SCALAR:
            scalar += count * model.salu
    return vector, matrix, scalar


def _local(work: Work, model: IssueModel) -> float:
    """Cycles of LDS: of its banks, or of the ports to pairs of SIMDs, whose way in stores share."""
    accesses = {name: traffic for name, traffic in work.traffic.items() if name.startswith("LDS")}
    banks = sum(traffic.cycles for traffic in accesses.values()) / model.lds_pipes
    permutes = sum(count for name, count in work.names.items() if name.startswith("ds_") and is_permute(name))
    banks += permutes * 4 * work.wavefront / (4 * model.lds_banks * model.lds_pipes)
    if not model.lds_port:
        return banks

    moved = 2 * 4 * work.wavefront * permutes
    moved += sum(traffic.port_bytes(name, work.wavefront) for name, traffic in accesses.items())
    return max(banks, moved / model.lds_port / 2)  # two pairs of SIMDs


def _vector_memory(work: Work, model: IssueModel) -> float:
    """Cycles of the vector cache over the launch."""
    kinds = [name for name in work.traffic if name.startswith("global") or name == "scratch"]
    return sum(work.traffic[name].cache_cycles(name, work.wavefront, model) for name in kinds)


def _peak(work: Work, model: IssueModel) -> float:
    """FLOPs per cycle of one SIMD, for the matrix instruction that does most of the work; 0 without any."""
    best = (0, 0.0)
    for name, count in work.names.items():
        if shape := matrix_shape(name):
            best = max(best, (count * shape.flops, shape.flops / matrix_cycles(shape, model)))
    return best[1]


@dataclass(frozen=True, kw_only=True)
class HotLine:
    """One instruction over a launch. `cycles` of its pipe in a unit; `conflicts` and `used` as in
    `Traffic`."""

    address: int
    line: int
    text: str
    count: int
    pipe: str
    cycles: float
    conflicts: float
    used: float


def hot_lines(measured: Measurement, model: IssueModel, *, count: int) -> tuple[HotLine, ...]:
    """The `count` busiest instructions, longest first. Raises UnsupportedError for a matrix instruction of
    unknown shape."""
    busy = [_hot(line, model) for line in measured.lines if line.count]
    return tuple(sorted(busy, key=lambda hot: (-hot.cycles, hot.address))[:count])


def _hot(measured: MeasuredLine, model: IssueModel) -> HotLine:
    """Pipe and cycles as the model counts them."""
    line, kind = measured.line, instruction_class(measured.line.name)
    if shape := matrix_shape(line.name):
        pipe, cycles = "matrix", measured.count * matrix_cycles(shape, model) / model.simds
    elif kind is InstructionClass.VALU:
        pipe, cycles = "vector", measured.count * vector_cycles(line.name, model) / model.simds
    elif kind is InstructionClass.LDS:
        pipe, cycles = "LDS", measured.lds_cycles / model.lds_pipes
    elif kind is InstructionClass.MEMORY and traffic_kind(line.name):
        pipe, cycles = "vector cache", SEGMENT * measured.segments / model.l1
    else:
        pipe, cycles = "scalar", measured.count * model.salu
    traffic, text = Traffic().plus(measured), " ".join(line.text.split())
    return HotLine(
        address=line.address, line=line.number, text=text, count=measured.count, pipe=pipe, cycles=cycles,
        conflicts=traffic.conflicts, used=traffic.used,
    )  # fmt: skip
