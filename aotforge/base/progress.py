"""Progress with time left on a terminal, or as JSON lines (docs/errors.md); else nothing but notes.

Honours NO_COLOR (https://no-color.org), and TERM=dumb counts as no terminal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
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


INTERVAL = 0.25
"""Seconds between two `progress` events of one kind of work; the last one of a work is never omitted."""


def write_event(stream: TextIO, event: str, **fields: object) -> None:
    """One line, written at once: other threads and processes may write to the same stream."""
    values = {"event": event, "time": round(time.time(), 3), **fields}
    stream.write(json.dumps(values).replace("\x7f", "\\u007f") + "\n")
    stream.flush()


class EventLines(Progress):
    """JSON lines: `started` and `finished` of a stage, `progress`, `job` and `note`.

    Work that belongs to no stage is a stage itself.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._events, self._clock = stream, clock
        self._stage = ""
        self._staged = False
        self._began = 0.0
        self._work: _Work | None = None
        self._works: dict[str, _Work] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(ok=kind is None)

    def stage(self, text: str) -> None:
        """A stage begins, and the one before has finished."""
        self._staged = True
        self._start(text)

    def begin(self, work: str, unit: Unit = "jobs") -> None:
        """Updates are about `work` from now on. Several kinds of work of a stage may alternate."""
        if not self._staged and work != self._stage:
            self._start(work)
        self._work = self._works.setdefault(work, _Work(work, unit))

    def update(self, done: int, total: int) -> None:
        """A `progress` event, unless there was one just now."""
        if self._work is not None and self._work.moved(done, total, self._clock()):
            self._write("progress", **self._work.written(self._clock()))

    def job(self, outcome: str, label: str, detail: str = "") -> None:
        """An event of its own for a job."""
        work = self._work.name if self._work else ""
        self._write("job", work=work, job=label, outcome=outcome, detail=detail)

    def note(self, text: str) -> None:
        """An event of its own for a text."""
        write_event(self._events, "note", text=text)

    def _write(self, event: str, **fields: object) -> None:
        write_event(self._events, event, stage=self._stage, **fields)

    def _start(self, stage: str) -> None:
        self._finish(ok=True)
        self._stage, self._began = stage, self._clock()
        self._write("started")

    def _finish(self, *, ok: bool) -> None:
        for work in self._works.values():
            if work.pending:
                self._write("progress", **work.written(self._clock()))
        self._works.clear()
        self._work = None
        if self._stage:
            self._write("finished", seconds=round(self._clock() - self._began, 3), ok=ok)
        self._stage = ""


class _Work:
    """Counts of one kind of work, and its rate over the latest 64 events."""

    def __init__(self, name: str, unit: Unit) -> None:
        self.name, self.unit = name, unit
        self.pending = False
        self._done = self._total = 0
        self._shown = -INTERVAL
        self._samples: deque[tuple[float, int]] = deque(maxlen=64)

    def moved(self, done: int, total: int, now: float) -> bool:
        """Keeps the counts; True where an event is due: after the interval, and at a known end."""
        last = self._done < total <= done and total == self._total
        if done < self._done or total != self._total:  # another piece of the same kind of work
            self._samples.clear()
        if (done, total) != (self._done, self._total) or not self._samples:
            self._done, self._total, self.pending = done, total, True
        return self.pending and (last or now - self._shown >= INTERVAL)

    def written(self, now: float) -> dict[str, object]:
        """Fields of an event with the present counts."""
        self.pending, self._shown = False, now
        self._samples.append((now, self._done))
        began, before = self._samples[0]
        rate = (self._done - before) / (now - began) if now > began else 0.0
        left = max(self._total - self._done, 0)
        seconds = left / rate if rate else None if left else 0.0
        return {
            "work": self.name,
            "unit": self.unit,
            "done": self._done,
            "total": self._total or None,
            "rate": round(rate, 3) or None,
            "seconds_left": round(seconds, 1) if self._total and seconds is not None else None,
        }
