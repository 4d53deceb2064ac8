"""Launches that stop at breakpoints, after steps and at the kernel's start.

The caller's function handles each stop.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from vgpu.emulator.debugger.locations import Breakpoint, DebugInfo
from vgpu.emulator.decoded import Line
from vgpu.emulator.hooks import HookEvent, InstructionHooks
from vgpu.emulator.program import LaunchReport, LaunchRequest

STATES = {0: "running", 1: "at a barrier", 2: "ended", 3: "stopped"}
_ENDED = 2


class Quit(Exception):
    """Raised at a stop to end the launch."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A wave is about to execute `line`. `reason` is for the user."""

    event: HookEvent
    line: Line
    reason: str


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Continue, do `count` instructions of this wave (`step`), or go to its next source line (`line`)."""

    kind: Literal["continue", "step", "line"] = "continue"
    count: int = 1


OnStop = Callable[[Stop], Resume]


@dataclass(frozen=True)
class _Stepping:
    resume: Resume
    wave: Any
    group: tuple[int, int, int]
    left: int
    source: str


class Session:
    """Breakpoints, numbered from 1, and steps of one launch; they may be changed at stops."""

    def __init__(
        self,
        info: DebugInfo,
        on_stop: OnStop,
        *,
        breakpoints: Iterable[Breakpoint] = (),
        at_entry: bool = False,
    ) -> None:
        self.info = info
        self.breakpoints: dict[int, Breakpoint] = dict(enumerate(breakpoints, 1))
        self._hits: dict[int, int] = {}
        self._on_stop = on_stop
        self._entry = at_entry
        self._stepping: _Stepping | None = None
        self._own: frozenset[int] = frozenset()
        self._watched: frozenset[int] = frozenset()
        self._watch: Callable[[HookEvent], None] | None = None
        self._hooks = InstructionHooks(self._on_event)

    def add(self, breakpoint_: Breakpoint) -> int:
        """Add a breakpoint; returns its number."""
        number = max([0, *self.breakpoints, *self._hits]) + 1
        self.breakpoints[number] = breakpoint_
        return number

    def hits(self, number: int) -> int:
        """How often a breakpoint's conditions were true."""
        return self._hits.get(number, 0)

    def watch(self, indices: frozenset[int], on_event: Callable[[HookEvent], None]) -> None:
        """Also call `on_event` before each of these instructions, without a stop."""
        self._watched, self._watch = indices, on_event

    def run(self, request: LaunchRequest) -> LaunchReport | None:
        """Launch with stops; None when a stop raised Quit. Raises what `Program.launch` raises."""
        self._set_hooks()
        try:
            return self.info.program.launch(replace(request, hooks=self._hooks, source=self.info))
        except Quit:
            return None

    def _set_hooks(self) -> None:
        if self._entry or self._stepping:
            self._own = frozenset(self.info.firsts)
        else:
            self._own = frozenset(i for b in self.breakpoints.values() for i in b.indices)
        self._hooks.set_indices(self._own | self._watched)

    def _on_event(self, event: HookEvent) -> None:
        if self._watch and event.index in self._watched:
            self._watch(event)
        if event.index not in self._own:
            return
        line = self.info.program.lines[event.index]
        reason = self._breakpoint(event) or ("start" if self._entry else self._stepped(event, line))
        if not reason:
            return
        self._entry, self._stepping = False, None
        resume = self._on_stop(Stop(event=event, line=line, reason=reason))
        if resume.kind != "continue":
            source = self.info.source_of(line)
            self._stepping = _Stepping(resume, event.wave, event.group, left=resume.count, source=source)
        self._set_hooks()

    def _breakpoint(self, event: HookEvent) -> str:
        """The reason when a breakpoint stops here, or ''."""
        reason = ""
        for number, one in list(self.breakpoints.items()):
            here = event.index in one.indices and one.wave in {None, int(event.wave.number)}
            if not here or one.group not in {None, event.group}:
                continue
            hit = self._hits[number] = self.hits(number) + 1
            if hit >= one.hit:
                reason = reason or f"breakpoint {number}, hit {hit}"
            if one.count and hit >= one.hit + one.count - 1:
                del self.breakpoints[number]
        return reason

    def _stepped(self, event: HookEvent, line: Line) -> str:
        """The reason when the current step ends here, or ''."""
        step = self._stepping
        if step is None:
            return ""
        number = int(step.wave.number)
        if event.group != step.group:
            return f"workgroup {step.group} has ended"
        if int(event.wave.number) != number:
            return f"wave {number} has ended" if step.wave.state == _ENDED else ""
        if step.resume.kind == "line" and self.info.source:
            source = self.info.source_of(line)
            return "line" if source and source != step.source else ""
        self._stepping = replace(step, left=step.left - 1)
        return "" if step.left > 1 else "step"


def stop_text(stop: Stop, info: DebugInfo) -> str:
    """Two lines: reason and location, and the instruction."""
    x, y, z = stop.event.group
    source = info.source_of(stop.line)
    return (
        f"{stop.reason}: workgroup ({x}, {y}, {z}), wave {stop.event.wave.number}\n"
        f"{listing_text(stop.line, marker='=>')}{f'  {source}' if source else ''}"
    )


def listing_text(line: Line, marker: str = "  ") -> str:
    """Address, line number and text of an instruction."""
    return f"{marker} {line.address:#07x} {line.number:6}  {' '.join(line.text.split())}"
