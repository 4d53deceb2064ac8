"""Progress with time left on a terminal, or as JSON lines; else nothing, so that logs stay readable.

Honours NO_COLOR (https://no-color.org), and TERM=dumb counts as no terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TextIO

from aotforge.base.printable import printable

if TYPE_CHECKING:
    import rich.progress

Unit = Literal["jobs", "bytes"]


class Report(Protocol):
    """A result for `--json` and for people."""

    def fields(self) -> object:
        """JSON values."""

    def lines(self) -> Sequence[str]:
        """Lines of text."""


class Observer(Protocol):
    """Receives what a long operation reports for people."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def note(self, text: str) -> None:
        """A fact that must stay visible, one line."""


@dataclass(frozen=True)
class LineObserver:
    """Passes stages and notes to one function."""

    write: Callable[[str], None]

    def stage(self, text: str) -> None:
        """A stage begins."""
        self.write(text)

    note = stage


SILENT = LineObserver(lambda _: None)
"""Ignores everything."""


class Progress:
    """A line of progress, used as a context manager; this one shows notes only, or nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes it away; the terminal is as before."""

    def stage(self, text: str) -> None:
        """A stage begins."""
        if self._stream is not None and self._stream.isatty():
            self.note(f"-- {text}")

    def note(self, text: str) -> None:
        """A fact that must stay visible, one line."""
        if self._stream is not None:
            self._stream.write(f"{printable(text)}\n")
            self._stream.flush()

    def begin(self, work: str, unit: Unit = "jobs") -> None:
        """Updates are about `work` from now on; its line replaces that of other work."""

    def update(self, done: int, total: int) -> None:
        """`done` of `total` are finished; a total of 0 is not known."""

    def job(self, outcome: str, label: str, detail: str = "") -> None:
        """A job of the work failed, is repeated, or is otherwise worth a line that stays."""
        self.note(": ".join(part for part in (outcome, label, detail) if part))


def progress(
    title: str = "",
    *,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
    quiet: bool = False,
    events: bool = False,
) -> Progress:
    """Progress on `stream` (default: stderr): a moving line on a terminal, only notes elsewhere.

    Nothing when `quiet`; JSON lines when `events`, also when `quiet`.
    """
    where = stream or sys.stderr
    shown: Progress
    if events:
        from aotforge.base.progress_events import EventLines  # noqa: PLC0415 - a subclass of `Progress`

        shown = EventLines(where)
    elif quiet:
        shown = Progress(None)
    elif not where.isatty() or environment.get("TERM") == "dumb":
        shown = Progress(where)
    else:
        shown = _Terminal(where)
    if title:
        shown.begin(title)
    return shown


OnProgress = Callable[[str, int, int], None]
"""Receives a stage (checking, sending, downloading, unpacking), the bytes done in it and their total."""


def byte_counter(on_progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    """A function that adds up bytes and reports them as progress of `stage`."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        on_progress(stage, done, total)

    return count


@contextmanager
def byte_progress(*, quiet: bool, events: bool = False) -> Iterator[OnProgress]:
    """Progress in bytes, which a terminal shows in MiB, one line per stage."""
    with progress(quiet=quiet, events=events) as shown:

        def report(stage: str, done: int, total: int) -> None:
            shown.begin(stage, "bytes")
            shown.update(done, total)

        yield report


class _Terminal(Progress):
    """Starts rich with the first update that has something to wait for: a no-op build does not."""

    _work = ""
    _unit: Unit = "jobs"
    _bar: rich.progress.Progress | None = None
    _before = 0

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, work: str, unit: Unit = "jobs") -> None:
        if work != self._work:
            self.__exit__()
            self._work, self._unit = work, unit

    def update(self, done: int, total: int) -> None:
        if self._unit == "bytes":
            done, total = done >> 20, (total >> 20) + 1
        if self._bar is None:
            if done >= total:
                return
            self._bar = self._start()
            self._before = done  # what was there before must not make the rest look quick
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=done - self._before, total=total - self._before)

    def note(self, text: str) -> None:
        if self._bar is None:
            super().note(text)
        else:
            self._bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _start(self) -> rich.progress.Progress:
        import rich.progress as bars  # noqa: PLC0415 - 0.1 s, which a build with nothing to do must not spend
        from rich.console import Console  # noqa: PLC0415 - as above

        bar = bars.Progress(
            "{task.description}",
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            "left:",
            bars.TimeRemainingColumn(),
            console=Console(file=self._stream, force_terminal=True),
            transient=True,
        )
        bar.add_task(f"{self._work}, MiB" if self._unit == "bytes" else self._work, total=None)
        bar.start()
        return bar
