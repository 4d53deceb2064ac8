"""Progress with time left on a terminal; nothing elsewhere, so that logs stay readable.

Honours NO_COLOR (https://no-color.org), and TERM=dumb counts as no terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from aotforge.base.printable import printable

if TYPE_CHECKING:
    import rich.progress


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

    def note(self, text: str) -> None:
        """A fact that must stay visible, one line."""
        self.write(text)


SILENT = LineObserver(lambda _: None)
"""Ignores everything."""


class Progress(Protocol):
    """A line of progress, used as a context manager."""

    def __enter__(self) -> Progress:
        """Show it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away; the terminal is as before."""

    def update(self, done: int, total: int) -> None:
        """`done` of `total` are finished."""

    def note(self, text: str) -> None:
        """One line of text that stays, above the progress line."""


def progress(
    title: str,
    *,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
    quiet: bool = False,
) -> Progress:
    """Progress on `stream` (stderr if not given): a moving line on a terminal, only notes elsewhere, nothing when `quiet`."""
    where = stream or sys.stderr
    if quiet:
        return _Plain(None)
    if not where.isatty() or environment.get("TERM") == "dumb":
        return _Plain(where)
    return _Terminal(title, where, color=not environment.get("NO_COLOR"))


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
def byte_progress(*, quiet: bool) -> Iterator[OnProgress]:
    """Progress in MiB, one line per stage."""
    with ExitStack() as shown:
        stages: dict[str, Progress] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                shown.close()
                stages.clear()
                stages[stage] = shown.enter_context(progress(f"{stage}, MiB", quiet=quiet))
            stages[stage].update(done >> 20, (total >> 20) + 1)

        yield report


class _Plain:
    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __enter__(self) -> _Plain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, done: int, total: int) -> None:
        return None

    def note(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(f"{printable(text)}\n")
            self._stream.flush()


class _Terminal:
    """Starts the display with the first update that has something to wait for: a build that finds everything shows nothing."""

    def __init__(self, title: str, stream: TextIO, *, color: bool) -> None:
        self._title = title
        self._stream = stream
        self._color = color
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._before = 0

    def __enter__(self) -> _Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        if self._bar is None:
            if done >= total:
                return
            self._start()
            self._before = done  # what was there before must not make the rest look quick
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done - self._before, total=total - self._before)

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(f"{printable(text)}\n")

    def _start(self) -> None:
        # rich takes a tenth of a second to import, which a build with nothing to do must not spend
        from rich.console import Console  # noqa: PLC0415 - rich: 16 ms, for progress bars only
        from rich.progress import (  # noqa: PLC0415 - as above
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar  # noqa: PLC0415 - as above

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=Console(file=self._stream, no_color=not self._color, force_terminal=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=None)
        self._bar.start()
