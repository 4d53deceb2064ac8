"""What people see of a build."""

from __future__ import annotations

import sys
from types import TracebackType

from aotforge.base.progress import Progress, progress
from aotforge.compile.events import CompileEvent
from aotforge.verify.verdict import VerifyEvent

_NOTED = {"damaged", "retry", "failed"}


class BuildDisplay:
    """Stages and compile events of one build, on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._title = "compiling"
        self._progress: Progress = progress(self._title, quiet=quiet)
        self._live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> BuildDisplay:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def _show(self, title: str) -> Progress:
        """The line of progress for a kind of work; another kind's is taken away."""
        if title != self._title:
            self._progress.__exit__(None, None, None)
            self._title, self._progress = title, progress(title, quiet=self._quiet)
            self._progress.__enter__()
        return self._progress

    def stage(self, name: str) -> None:
        """A room begins; said on a terminal only."""
        if self._live:
            self._progress.note(f"-- {name}")

    def note(self, text: str) -> None:
        """Something that people should know and did not ask for; one line that stays."""
        self._progress.note(text)

    def event(self, event: CompileEvent) -> None:
        """News of a compile job; what went well only moves the bar."""
        line = self._show("compiling")
        if event.kind in _NOTED:
            line.note(f"{event.kind}: {event.label}: {event.detail}")
        line.update(event.done, event.total)

    def verdict(self, event: VerifyEvent) -> None:
        """News of an image on the virtual GPU; what passed only moves the bar."""
        line = self._show("verifying")
        if event.verdict.outcome != "passed":
            line.note(f"{event.verdict.outcome}: {event.verdict.label}")
        line.update(event.done, event.total)


def build_display(*, quiet: bool) -> BuildDisplay:
    """A display for one build; nothing but errors when `quiet`."""
    return BuildDisplay(quiet=quiet)
