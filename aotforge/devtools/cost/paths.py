"""Paths of the waves of a launch through a kernel's basic blocks, recorded while it executes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    found, before = {0}, -1
    for index, line in enumerate(lines):
        if line.address in labelled and line.address != before:
            found.add(index)
        if line.name.startswith(_JUMPS):
            found.add(index + 1)
        before = line.address
    return (*sorted(found - {len(lines)}), len(lines))
