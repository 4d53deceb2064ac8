"""What people see of a build."""

from __future__ import annotations

import sys
from types import TracebackType

from aotforge.compile.events import CompileEvent
from aotforge.ui.progress import Progress, progress

_NOTED = {"damaged", "retry", "failed"}


class BuildDisplay:
    """Stages and compile events of one build, on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress: Progress = progress("compiling", quiet=quiet)
        self._live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> BuildDisplay:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def stage(self, name: str) -> None:
        """A room begins; said on a terminal only."""
        if self._live:
            self._progress.note(f"-- {name}")

    def event(self, event: CompileEvent) -> None:
        """News of a compile job; what went well only moves the bar."""
        if event.kind in _NOTED:
            self._progress.note(f"{event.kind}: {event.label}: {event.detail}")
        self._progress.update(event.done, event.total)


def build_display(*, quiet: bool) -> BuildDisplay:
    """A display for one build; nothing but errors when `quiet`."""
    return BuildDisplay(quiet=quiet)
