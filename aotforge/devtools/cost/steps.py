"""Instructions for the timing of waves: unit, cycles, latency, what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotforge.devtools.cost.rates import IssueModel, matrix_cycles, matrix_shape, vector_cycles
from aotforge.devtools.cost.work import Traffic, is_permute, traffic_kind
from vgpu.emulator import effects as waits
from vgpu.emulator.classes import InstructionClass, instruction_class
from vgpu.emulator.decoded import Line
from vgpu.emulator.measure import MeasuredLine

VECTOR, MATRIX, SCALAR, LOCAL, MEMORY, NONE = range(6)
"""Units. Waves of a SIMD take turns at the first three; instructions of the next two queue up behind each
other."""
_BARRIERS = ("s_barrier", "s_barrier_wait")
Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One instruction. Cycles: `issue` until the wave's next instruction, `busy` of its unit, `latency` from
    then until its result is there.

    `shared`: cycles of a unit that the SIMDs of a compute unit share, per SIMD that uses it. `counter`: which
    outstanding operations it is one of (waits.py), 0 for none; `waits`: of which at most how many may be
    left. `results` and `needs` number results that later instructions need; `sums`: those that it adds to,
    which a matrix instruction may do as soon as the unit is free. `taken`: cycles more when the wave's next
    block is not the one behind.
    """

    unit: int
    issue: float
    busy: float = 0.0
    shared: float = 0.0
    latency: float = 0.0
    counter: int = 0
    waits: tuple[tuple[int, int], ...] = ()
    results: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    barrier: bool = False
    taken: float = 0.0


def steps_of(
    measured: Sequence[MeasuredLine], effects: Any, model: IssueModel, wavefront: int
) -> tuple[Step | None, ...]:
    """One of each line; None for the second half of a dual-issue pair. `effects`: as of `Program.effects`."""
    lines = [measured_line.line for measured_line in measured]
    spans = [_spans(effects[index]) for index in range(len(lines))]
    slow = sorted(
        {
            span
            for line, (_, writes) in zip(lines, spans, strict=True)
            if _is_slow(line, model)
            for span in writes
        }
    )
    steps: list[Step | None] = []
    for index, measured_line in enumerate(measured):
        if index and lines[index - 1].address == measured_line.line.address:
            steps.append(None)
            continue
        both = (index, index + 1)
        pair = [at for at in both if at < len(lines) and lines[at].address == measured_line.line.address]
        reads = [span for at in pair for span in spans[at][0]]
        writes = [span for at in pair for span in spans[at][1]]
        steps.append(_step(measured_line, effects[index], (reads, writes), slow, model, wavefront))
    return tuple(steps)


def _is_slow(line: Line, model: IssueModel) -> bool:
    """Whether its result comes after the next issue, and only uses of it wait."""
    kind = instruction_class(line.name)
    return kind is InstructionClass.MATRIX or (kind is InstructionClass.VALU and model.vector_latency > 0)


def _spans(effects: Any) -> tuple[list[Span], list[Span]]:
    spans = [(int(s.first), int(s.count)) for s in effects.spans[: effects.reads + effects.writes]]
    return spans[: effects.reads], spans[effects.reads :]


def _step(
    measured: MeasuredLine,
    effects: Any,
    spans: tuple[list[Span], list[Span]],
    slow: list[Span],
    model: IssueModel,
    wavefront: int,
) -> Step:
    line, (reads, writes) = measured.line, spans
    kind = instruction_class(line.name)
    needs = _numbers([*reads, *writes], slow)
    if shape := matrix_shape(line.name):
        results = tuple(slow.index(span) for span in writes)
        sums = tuple(slow.index(span) for span in writes if span in reads[-1:])
        return Step(
            unit=MATRIX if model.matrix_apart else VECTOR, issue=model.issue,
            busy=float(matrix_cycles(shape, model)), latency=model.matrix_latency, results=results,
            needs=tuple(number for number in needs if number not in sums), sums=sums,
        )  # fmt: skip
    if kind is InstructionClass.VALU:
        cycles, latency = float(vector_cycles(line.name, model)), model.vector_latency
        results = tuple(slow.index(span) for span in writes) if latency else ()
        issue = float(model.issue) if latency else cycles
        return Step(unit=VECTOR, issue=issue, busy=cycles, latency=latency, results=results, needs=needs)
    if effects.kind:
        return _memory_step(measured, effects.kind, needs, model, wavefront)
    if effects.waits or line.name in _BARRIERS:
        every = enumerate(effects.wait)
        left = tuple((counter, int(most)) for counter, most in every if counter and most != waits.NO_WAIT)
        return Step(unit=NONE, issue=model.issue, waits=left, barrier=line.name in _BARRIERS)
    if line.name == "s_nop" or kind not in {InstructionClass.SALU, InstructionClass.CONTROL}:
        turns = 1 + int(line.text.split()[1], 0) if line.name == "s_nop" else 1
        return Step(unit=NONE, issue=model.issue * turns, needs=needs)
    taken = float(model.branch - model.issue) if "branch" in line.name else 0.0
    return Step(unit=SCALAR, issue=model.issue, busy=model.issue, needs=needs, taken=taken)


def _memory_step(
    measured: MeasuredLine, counter: int, needs: tuple[int, ...], model: IssueModel, wavefront: int
) -> Step:
    count, kind = max(measured.count, 1), traffic_kind(measured.line.name) or ""
    step = Step(unit=NONE, issue=model.issue, latency=model.lds_latency, counter=counter, needs=needs)
    if counter == waits.SCALAR:
        return step
    traffic = Traffic().plus(measured)
    if counter == waits.LOCAL:
        if is_permute(measured.line.name):
            banks, moved = 4 * wavefront / (4 * model.lds_banks), 2.0 * 4 * wavefront
        else:
            banks, moved = measured.lds_cycles / count, traffic.port_bytes(kind, wavefront) / count
        port = moved / model.lds_port / 2 if model.lds_port else 0.0
        return replace(step, unit=LOCAL, shared=max(banks / model.lds_pipes, port))
    latency = model.scratch_latency if kind == "scratch" else model.memory_latency
    shared = traffic.cache_cycles(kind, wavefront, model) / count
    return replace(step, unit=MEMORY, shared=shared, latency=latency)


def _numbers(spans: Sequence[Span], slow: Sequence[Span]) -> tuple[int, ...]:
    """Of the results that share registers with one of `spans`."""
    return tuple(
        number
        for number, (first, count) in enumerate(slow)
        if any(begin < first + count and first < begin + words for begin, words in spans)
    )
