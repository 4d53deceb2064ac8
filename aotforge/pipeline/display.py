"""Progress of a build: the protocol `BuildObserver`, and its display on a terminal or as events."""

from contextlib import ExitStack
from typing import Protocol

from aotforge.base.progress import Observer, progress
from aotforge.compile.model import CompileEvent
from aotforge.verify.verdict import VerifyEvent

_NOTED = {"damaged", "retry", "failed"}


class BuildObserver(Observer, Protocol):
    """Receives what a build reports while it runs."""

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state."""

    def verdict(self, event: VerifyEvent) -> None:
        """An image was executed on the virtual GPU, or its verdict is known."""


class BuildDisplay(ExitStack):
    """Shows stages, compile events and verdicts on stderr; nothing when `quiet`, JSON lines when `events`."""

    def __init__(self, *, quiet: bool, events: bool = False) -> None:
        super().__init__()
        self._line = line = self.enter_context(progress(quiet=quiet, events=events))
        self.stage, self.note = line.stage, line.note

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state; success only moves the bar."""
        self._line.begin("compiling")
        if event.kind in _NOTED:
            self._line.job(event.kind, event.label, event.detail)
        self._line.update(event.done, event.total)

    def verdict(self, event: VerifyEvent) -> None:
        """An image has its verdict; `passed` only moves the bar."""
        self._line.begin("verifying")
        if event.verdict.outcome != "passed":
            self._line.job(event.verdict.outcome, event.verdict.label)
        self._line.update(event.done, event.total)
