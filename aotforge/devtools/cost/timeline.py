"""Times of a launch's workgroups by the model: alone, and on a unit that is full. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotforge.devtools.cost.simd import Bundle, Wave, durations
from aotforge.devtools.cost.steps import Step
from vgpu.emulator.decoded import Line
from vgpu.emulator.hooks import HookEvent, InstructionHooks

_JUMPS = ("s_branch", "s_cbranch", "s_call", "s_setpc", "s_swappc", "s_endpgm")
Path = tuple[int, ...]
"""Indices of the first instructions of the blocks that a wave executes, in order."""


@dataclass(frozen=True, kw_only=True)
class Paths:
    """`groups`: the paths of a workgroup's waves, and how many workgroups have them, in the order of the
    first one. `starts`: where blocks begin, sorted, then the number of lines."""

    groups: tuple[tuple[tuple[Path, ...], int], ...]
    starts: tuple[int, ...]

    def block(self, first: int) -> range:
        """Indices of the lines of a block."""
        return range(first, self.starts[bisect_right(self.starts, first)])


class PathRecorder:
    """Records a launch whose hooks call `on_event` before every instruction of `indices`: the first ones of
    blocks."""

    def __init__(self, lines: Sequence[Line], labels: Mapping[str, int], listed: Sequence[Line]) -> None:
        addresses = {listed[at].address for at in labels.values() if at < len(listed)}
        self._starts = block_starts(lines, addresses)
        self.indices = frozenset(self._starts[:-1])
        self._found: dict[tuple[int, int, int], dict[int, list[int]]] = {}

    @property
    def hooks(self) -> InstructionHooks:
        """For a launch without other ones."""
        hooks = InstructionHooks(self.on_event)
        hooks.set_indices(self.indices)
        return hooks

    def on_event(self, event: HookEvent) -> None:
        """A wave is about to begin a block."""
        waves = self._found.setdefault(event.group, {})
        waves.setdefault(int(event.wave.number), []).append(event.index)

    def paths(self) -> Paths:
        """After the launch."""
        groups = Counter(
            tuple(tuple(path) for _, path in sorted(waves.items())) for waves in self._found.values()
        )
        return Paths(groups=tuple(groups.items()), starts=self._starts)


def block_starts(lines: Sequence[Line], labelled: set[int]) -> tuple[int, ...]:
    """Where blocks begin: at the first line, at labels, behind branches; then the number of lines.
    `labelled`: addresses with a label."""
    starts, before = {0}, -1
    for index, line in enumerate(lines):
        if line.address in labelled and line.address != before:
            starts.add(index)
        if line.name.startswith(_JUMPS):
            starts.add(index + 1)
        before = line.address
    return (*sorted(starts - {len(lines)}), len(lines))


_TIMED = 8
"""Most workgroups that are timed alone; the others are scaled by their instructions."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Cycles. `wave`: a workgroup's waves on one SIMD, while the other SIMDs have its other waves;
    `workgroup`: per workgroup on a unit with `resident` of them."""

    wave: float
    resident: float
    workgroup: float


def timeline(
    steps: Sequence[Step | None], paths: Paths, *, waves: int, simds: int, resident: float
) -> Timeline:
    """`waves` of a workgroup, `simds` of a unit, `resident` workgroups on it at once."""
    blocks = {first: _block(steps, paths.block(first)) for first in paths.starts[:-1]}
    # the waves of the first SIMD
    groups = [(tuple(_wave(blocks, path) for path in group[::simds]), count) for group, count in paths.groups]
    total = sum(count for _, count in groups)
    length = sum(_length(bundle) * count for bundle, count in groups) / total
    alone = _weighted(groups, sharing=min(simds, waves), length=length)
    on_simd = resident * waves / simds / max(1, waves // simds)
    rates = []
    for slots, share in _integers(on_simd):
        if slots:
            rates.append(share * slots / _full(groups, slots, simds, alone, length))
    per_group = max(1, waves // simds) * simds / waves
    return Timeline(wave=alone, resident=resident, workgroup=1 / (sum(rates) * per_group))


def _block(steps: Sequence[Step | None], lines: range) -> tuple[int, Wave, Wave]:
    """The index behind it; its steps when the next block is there, and when it is elsewhere."""
    executed = [step for step in (steps[index] for index in lines) if step is not None]
    last = executed[-1]
    jump = (
        Step(unit=last.unit, issue=last.issue + last.taken, busy=last.busy, needs=last.needs)
        if last.taken
        else last
    )
    return lines.stop, tuple(executed), (*executed[:-1], jump)


def _wave(blocks: Mapping[int, tuple[int, Wave, Wave]], path: Path) -> Wave:
    steps: list[Step] = []
    for first, following in zip(path, (*path[1:], -1), strict=True):
        behind, falls, jumps = blocks[first]
        steps += falls if following in (behind, -1) else jumps
    return steps


def _length(bundle: Bundle) -> float:
    """What the waves take to issue all: comparable between workgroups, before anything is timed."""
    return sum(step.issue + step.busy for wave in bundle for step in wave)


def _weighted(groups: Sequence[tuple[Bundle, int]], *, sharing: float, length: float) -> float:
    """The mean time of a workgroup by itself; of many different ones, some are timed."""
    chosen = _sample(groups, _TIMED)
    times = sum(durations([[bundle]], sharing=sharing)[0] for bundle in chosen)
    return times / sum(map(_length, chosen)) * length


def _full(groups: Sequence[tuple[Bundle, int]], slots: int, simds: int, alone: float, length: float) -> float:
    """The mean time of a bundle where each of `slots` executes bundles one after another."""
    chosen = _sample(groups, 2 * slots)
    chosen = [chosen[at % len(chosen)] for at in range(2 * slots)]
    # the slots' first bundles begin one after another, so that they are at different places; they do not
    # count
    rounds = [[chosen[slot], chosen[slots + slot]] for slot in range(slots)]
    times = durations(rounds, sharing=simds, stagger=alone / slots)
    return sum(times) / sum(_length(bundles[1]) for bundles in rounds) * length


def _sample(groups: Sequence[tuple[Bundle, int]], count: int) -> list[Bundle]:
    """As many workgroups at most, at equal distances among all of them."""
    every = [bundle for bundle, times in groups for _ in range(times)]
    step = max(1.0, len(every) / count)
    return [every[int(at * step)] for at in range(min(count, len(every)))]


def _integers(number: float) -> list[tuple[int, float]]:
    """The integers around a number, with the shares that make it their mean."""
    low = math.floor(number)
    return [(low, 1 - (number - low)), (low + 1, number - low)] if number > low else [(low, 1.0)]
