"""Progress of a build: the protocol `BuildObserver`, and its display on a terminal."""

import sys
from contextlib import ExitStack
from typing import Protocol

from aotforge.base.progress import Observer, Progress, progress
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
    """Shows stages, compile events and verdicts of a build on stderr; nothing when `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__()
        self._quiet, self._title = quiet, ""
        self._terminal = not quiet and sys.stderr.isatty()
        self._progress = self._show("compiling")

    def _show(self, title: str) -> Progress:
        """The progress line for a kind of work; it replaces that of another kind."""
        if title != self._title:
            self.close()
            self._title = title
            self._progress = self.enter_context(progress(title, quiet=self._quiet))
        return self._progress

    def stage(self, text: str) -> None:
        """A stage begins; shown on a terminal only."""
        if self._terminal:
            self._progress.note(f"-- {text}")

    def note(self, text: str) -> None:
        """A fact that must stay visible, one line."""
        self._progress.note(text)

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state; success only moves the bar."""
        line = self._show("compiling")
        if event.kind in _NOTED:
            line.note(f"{event.kind}: {event.label}: {event.detail}")
        line.update(event.done, event.total)

    def verdict(self, event: VerifyEvent) -> None:
        """An image has its verdict; `passed` only moves the bar."""
        line = self._show("verifying")
        if event.verdict.outcome != "passed":
            line.note(f"{event.verdict.outcome}: {event.verdict.label}")
        line.update(event.done, event.total)
