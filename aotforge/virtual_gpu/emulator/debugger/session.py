"""A launch that stops: at breakpoints, after steps, at the kernel's start. What happens at a stop is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aotforge.virtual_gpu.emulator.debugger.places import Breakpoint, Map
from aotforge.virtual_gpu.emulator.debugger.views import Sight
from aotforge.virtual_gpu.emulator.decoded import Line
from aotforge.virtual_gpu.emulator.probes import Arrival, Probes
from aotforge.virtual_gpu.emulator.program import LaunchReport
from aotforge.virtual_gpu.interpreter.memory import Memory

STATES = {0: "running", 1: "at a barrier", 2: "ended", 3: "stopped"}
_ENDED = 2


class Quit(Exception):
    """Raised at a stop to end the launch."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A wave is about to execute `line`. `reason` for the user; `hit` how often the breakpoint's conditions held."""

    arrival: Arrival
    line: Line
    reason: str
    breakpoint: int | None = None
    hit: int = 0


@dataclass(frozen=True, kw_only=True)
class Resume:
    """How to go on. `step`: `count` instructions of this wave; `line`: to another source line in this wave."""

    kind: Literal["continue", "step", "line"] = "continue"
    count: int = 1


OnStop = Callable[[Stop], Resume]


@dataclass(frozen=True, kw_only=True)
class _Stepping:
    resume: Resume
    wave: Any
    group: tuple[int, int, int]
    left: int
    source: str


class Session:
    """Breakpoints and steps of one launch. `breakpoints` are numbered from 1; they may be changed at stops."""

    def __init__(
        self, where: Map, on_stop: OnStop, *, breakpoints: Iterable[Breakpoint] = (), at_entry: bool = False
    ) -> None:
        self.where = where
        self.breakpoints: dict[int, Breakpoint] = dict(enumerate(breakpoints, 1))
        self._hits: dict[int, int] = {}
        self._on_stop = on_stop
        self._entry = at_entry
        self._stepping: _Stepping | None = None
        self._probes = Probes(self._reached)

    def add(self, breakpoint_: Breakpoint) -> int:
        """A further breakpoint; its number."""
        number = max([0, *self.breakpoints, *self._hits]) + 1
        self.breakpoints[number] = breakpoint_
        return number

    def hits(self, number: int) -> int:
        """How often a breakpoint's wave and group came by."""
        return self._hits.get(number, 0)

    def run(
        self, grid: tuple[int, int, int], arguments: Sequence[int | float], memory: Memory, **options: Any
    ) -> LaunchReport | None:
        """Launch with `options` of `Program.launch`; None when a stop raised Quit. Raises what `launch` raises."""
        self._arm()
        try:
            return self.where.program.launch(
                grid, arguments, memory, probes=self._probes, source=self.where, **options
            )
        except Quit:
            return None

    def _arm(self) -> None:
        if self._entry or self._stepping:
            self._probes.choose(self.where.firsts)
        else:
            self._probes.choose(i for b in self.breakpoints.values() for i in b.indices)

    def _reached(self, arrival: Arrival) -> None:
        stop = self._stop(arrival)
        if stop is None:
            return
        self._entry, self._stepping = False, None
        resume = self._on_stop(stop)
        if resume.kind != "continue":
            self._stepping = _Stepping(
                resume=resume,
                wave=arrival.wave,
                group=arrival.group,
                left=resume.count,
                source=self.where.source_of(stop.line),
            )
        self._arm()

    def _stop(self, arrival: Arrival) -> Stop | None:
        line = self.where.program.lines[arrival.index]
        found = self._breakpoint(arrival)
        if found:
            number, hit = found
            return Stop(
                arrival=arrival,
                line=line,
                reason=f"breakpoint {number}, hit {hit}",
                breakpoint=number,
                hit=hit,
            )
        if self._entry:
            return Stop(arrival=arrival, line=line, reason="start")
        reason = self._stepped(arrival, line)
        return Stop(arrival=arrival, line=line, reason=reason) if reason else None

    def _breakpoint(self, arrival: Arrival) -> tuple[int, int] | None:
        found = None
        for number, one in list(self.breakpoints.items()):
            if (
                arrival.index not in one.indices
                or one.wave not in {None, int(arrival.wave.number)}
                or one.group not in {None, arrival.group}
            ):
                continue
            hit = self._hits[number] = self._hits.get(number, 0) + 1
            if hit >= one.hit:
                found = found or (number, hit)
            if one.count and hit >= one.hit + one.count - 1:
                del self.breakpoints[number]
        return found

    def _stepped(self, arrival: Arrival, line: Line) -> str:
        """Why the step that is being made ends here, or ''."""
        step = self._stepping
        if step is None:
            return ""
        number = int(step.wave.number)
        if arrival.group != step.group:
            return f"workgroup {step.group} has ended"
        if int(arrival.wave.number) != number:
            return f"wave {number} has ended" if step.wave.state == _ENDED else ""
        if step.resume.kind == "line" and self.where.source:
            source = self.where.source_of(line)
            return "line" if source and source != step.source else ""
        if step.left > 1:
            self._stepping = _Stepping(
                resume=step.resume, wave=step.wave, group=step.group, left=step.left - 1, source=step.source
            )
            return ""
        return "step"


def sight(
    stop: Stop,
    where: Map,
    memory: Memory,
    arguments: Mapping[str, int | float],
    *,
    wave: int | None = None,
    lanes: Sequence[int] | None = None,
) -> Sight:
    """What can be seen from a stop: of its own wave, or of another one of the workgroup."""
    width = where.program.target.lanes
    return Sight(
        wave=stop.arrival.wave if wave is None else stop.arrival.waves[wave],
        lanes=range(width) if lanes is None else lanes,
        registers=where.program.registers,
        memory=memory,
        arguments=arguments,
        width=width,
    )


def place_text(stop: Stop, where: Map) -> str:
    """Two lines: why and where, and the instruction."""
    x, y, z = stop.arrival.group
    source = where.source_of(stop.line)
    return (
        f"{stop.reason}: workgroup ({x}, {y}, {z}), wave {stop.arrival.wave.number}\n"
        f"{listing_text(stop.line, marker='=>')}{f'  {source}' if source else ''}"
    )


def listing_text(line: Line, marker: str = "  ") -> str:
    """Address, line number and text of an instruction."""
    return f"{marker} {line.address:#07x} {line.number:6}  {' '.join(line.text.split())}"
