"""An estimate of cycles from a launch's work and a chip's figures. Pure; docs/virtual-gpu-tools.md states the model and what it ignores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aotforge.devtools.cost.arch_rates import IssueModel
from aotforge.devtools.cost.rates import matrix_cycles, matrix_shape, vector_cycles
from aotforge.devtools.cost.work import Work
from aotforge.virtual_gpu.emulator.classes import InstructionClass, instruction_class

_ALONE = "latency of one wave"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Cycles. `pipes`: what a workgroup keeps each pipe of its unit busy for, when the unit is full; `wave`: one wave by itself,
    every wait at full latency; `resident`: workgroups on a unit at once; `workgroup`: per workgroup on a full unit; `alone`: one
    workgroup on an empty one; `launch`: all of them on the whole chip. `bound`: what decides `workgroup`. `utilization`: of the
    unit's matrix peak, 0 to 1.
    """

    pipes: Mapping[str, float]
    wave: float
    resident: float
    workgroup: float
    alone: float
    launch: float
    microseconds: float
    bound: str
    utilization: float


def estimate(work: Work, model: IssueModel, *, arch: str, occupancy: int, simds: int) -> Estimate:
    """`occupancy` in waves per SIMD, `simds` of a unit."""
    groups = work.workgroups
    vector, matrix, scalar, wave_issue = _issued(work, model, arch)
    local = _local(work, model)
    vmem = _vector_memory(work, model)
    resident = max(1.0, math.floor(max(occupancy, 1) * simds / work.waves))
    shared = {
        "scalar": scalar / groups,
        "LDS": local / groups,
        "vector cache": vmem / groups,
        "memory": (work.loaded + work.stored) / groups / (model.memory / model.units),
    }
    per_simd = {"vector": vector / groups, "matrix": matrix / groups}
    if not model.matrix_apart:
        per_simd = {"vector": (vector + matrix) / groups}
    pipes = {name: cycles / simds for name, cycles in per_simd.items()} | shared
    busy = max(pipes.values())
    used = min(simds, work.waves)
    busy_alone = max(
        [cycles / used for cycles in per_simd.values()] + [c for n, c in shared.items() if n != "memory"]
    )
    waits = work.memory_waits * model.memory_latency + work.local_waits * model.lds_latency
    wave = (wave_issue + waits) / (groups * work.waves)
    steady = max(busy, wave / resident)
    alone = max(busy_alone, wave)
    rounds = math.ceil(groups / model.units)
    memory = (work.loaded + work.stored) / model.memory
    launch = max(alone, rounds * steady if rounds > 1 else 0.0, memory)
    peak = simds * _peak(work, arch)
    return Estimate(
        pipes=pipes,
        wave=wave,
        resident=resident,
        workgroup=steady,
        alone=alone,
        launch=launch,
        microseconds=launch / model.clock_mhz,
        bound=_ALONE if wave / resident > busy else max(pipes, key=lambda name: pipes[name]),
        utilization=work.flops / groups / steady / peak if peak and steady else 0.0,
    )


def _issued(work: Work, model: IssueModel, arch: str) -> tuple[float, float, float, float]:
    """Over the launch: cycles of vector units, of matrix hardware, of scalar hardware; and what waves take to issue all, in order."""
    vector = matrix = scalar = wave = 0.0
    for name, count in work.names.items():
        kind = instruction_class(name)
        cycles = float(model.issue)
        if shape := matrix_shape(name):
            cycles = float(matrix_cycles(shape, arch))
            matrix += count * cycles
            vector += count * model.issue if model.matrix_apart else 0
        elif kind is InstructionClass.VALU:
            cycles = float(vector_cycles(name, model))
            vector += count * cycles
        elif kind in {InstructionClass.SALU, InstructionClass.SCALAR_MEMORY, InstructionClass.CONTROL}:
            scalar += count * model.salu
        wave += count * cycles
    return vector, matrix, scalar, wave


def _local(work: Work, model: IssueModel) -> float:
    """Cycles of LDS over the launch: its banks, or the ports between it and pairs of SIMDs, whichever takes longer.

    A port moves `lds_port` bytes a clock each way; addresses and data of stores share the way in.
    """
    banks = sum(t.cycles for n, t in work.traffic.items() if n.startswith("LDS")) / model.lds_pipes
    permutes = sum(
        count
        for name, count in work.names.items()
        if name.startswith("ds_") and ("permute" in name or "swizzle" in name)
    )
    banks += permutes * 4 * work.wavefront / (4 * model.lds_banks * model.lds_pipes)
    if not model.lds_port:
        return banks
    ports = 4 * work.wavefront * permutes / model.lds_port * 2
    for name, one in work.traffic.items():
        if name.startswith("LDS"):
            addresses = one.instructions * 4 * work.wavefront
            ports += (
                max(addresses, one.bytes) if name == "LDS loads" else addresses + one.bytes
            ) / model.lds_port
    return max(banks, ports / 2)  # two pairs of SIMDs


def _vector_memory(work: Work, model: IssueModel) -> float:
    """Cycles of the vector cache over the launch: 64-byte segments through it, but at least the addresses of every instruction."""
    cycles = 0.0
    for name, one in work.traffic.items():
        if name.startswith("global") or name == "scratch":
            addresses = one.instructions * work.wavefront / model.address_lanes / model.cus_per_unit
            data = one.segments * 64 if name != "scratch" else one.bytes
            cycles += max(addresses, data / model.l1)
    return cycles


def _peak(work: Work, arch: str) -> float:
    """FLOPs per cycle of one SIMD, for the matrix instruction that does most of the work; 0 without any."""
    best = (0, 0.0)
    for name, count in work.names.items():
        if shape := matrix_shape(name):
            best = max(best, (count * shape.flops, shape.flops / matrix_cycles(shape, arch)))
    return best[1]
