"""Progress with time left on a terminal, or as JSON lines (docs/errors.md); else nothing but notes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TextIO

from aotforge.errors import printable

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


@dataclass(frozen=True, eq=False, repr=False)
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
    """Counts of work, used as a context manager; this one shows notes only, or nothing."""

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._work: _Work | None = None
        self._works: dict[str, _Work] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The end, of an error too."""

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
        """Updates are about `work` from now on. Several kinds of work of a stage may alternate."""
        self._work = self._works.setdefault(work, _Work(work, unit))

    def update(self, done: int, total: int) -> None:
        """`done` of `total` are finished; a total of 0 is not known. Shown unless that was done just now."""
        if self._work is not None and self._work.moved(done, total, self._clock()):
            self._show(self._work)

    def bytes(self, stage: str, done: int, total: int) -> None:
        """Progress in bytes, which a terminal shows in MiB, one line per stage."""
        self.begin(stage, "bytes")
        self.update(done, total)

    def job(self, outcome: str, label: str, detail: str = "") -> None:
        """A job of the work failed, is repeated, or is otherwise worth a line that stays."""
        self.note(": ".join(part for part in (outcome, label, detail) if part))

    def _show(self, work: _Work) -> None:
        """Shows counts."""


def progress(
    title: str = "",
    *,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
    quiet: bool = False,
    events: bool = False,
) -> Progress:
    """Progress on `stream` (default: stderr): a line on a terminal (TERM=dumb is none), elsewhere only notes.

    Nothing when `quiet`; JSON lines when `events`, also when `quiet`.
    """
    where = stream or sys.stderr
    moving = where.isatty() and environment.get("TERM") != "dumb"
    kind = EventLines if events else _Terminal if moving and not quiet else Progress
    shown = kind(None if quiet and not events else where)
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


class _Terminal(Progress):
    """One line that is written again; none before there is something to wait for."""

    _line: str | None = None

    def __exit__(self, *error: object) -> None:
        self._write("")

    def note(self, text: str) -> None:
        self._write("")
        super().note(text)

    def _show(self, work: _Work) -> None:
        counts = work.counts(self._clock())
        if self._line is not None or work.done < work.total:
            size = 2**20 if work.unit == "bytes" else 1
            text = f"{work.name} {work.done // size}" + (f"/{work.total // size}" if work.total else "")
            text += " MiB" if work.unit == "bytes" else ""
            left = counts["seconds_left"]
            text += "" if left is None else f", left: {int(left) // 60}:{int(left) % 60:02}"
            self._write(printable(text)[: shutil.get_terminal_size().columns - 1])

    def _write(self, line: str) -> None:
        if self._stream is not None and (line or self._line):
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()
            self._line = line


INTERVAL = 0.25
"""Seconds between two updates of one kind of work that are shown; the last one is never omitted."""


def write_event(stream: TextIO, event: str, **fields: object) -> None:
    """One line, written at once: other threads and processes may write to the same stream."""
    values = {"event": event, "time": round(time.time(), 3), **fields}
    stream.write(json.dumps(values).replace("\x7f", "\\u007f") + "\n")
    stream.flush()


class EventLines(Progress):
    """JSON lines: `started` and `finished` of a stage, `progress`, `job` and `note`.

    Work that belongs to no stage is a stage itself.
    """

    _stage = ""
    _staged = False
    _began = 0.0

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._finish(ok=kind is None)

    def stage(self, text: str) -> None:
        """A stage begins, and the one before has finished."""
        self._staged = True
        self._start(text)

    def begin(self, work: str, unit: Unit = "jobs") -> None:
        """As of any progress; a stage begins where none has."""
        if not self._staged and work != self._stage:
            self._start(work)
        super().begin(work, unit)

    def job(self, outcome: str, label: str, detail: str = "") -> None:
        """An event of its own for a job."""
        work = self._work.name if self._work else ""
        self._write("job", work=work, job=label, outcome=outcome, detail=detail)

    def note(self, text: str) -> None:
        """An event of its own for a text."""
        write_event(self._stream or sys.stderr, "note", text=text)

    def _show(self, work: _Work) -> None:
        self._write("progress", **work.counts(self._clock()))

    def _write(self, event: str, **fields: object) -> None:
        write_event(self._stream or sys.stderr, event, stage=self._stage, **fields)

    def _start(self, stage: str) -> None:
        self._finish(ok=True)
        self._stage, self._began = stage, self._clock()
        self._write("started")

    def _finish(self, *, ok: bool) -> None:
        for work in self._works.values():
            if work.pending:
                self._show(work)
        self._works.clear()
        self._work = None
        if self._stage:
            self._write("finished", seconds=round(self._clock() - self._began, 3), ok=ok)
        self._stage = ""


class _Work:
    """Counts of one kind of work, and its rate over the latest 64 that were shown."""

    def __init__(self, name: str, unit: Unit) -> None:
        self.name, self.unit = name, unit
        self.pending = False
        self.done = self.total = 0
        self._shown = -INTERVAL
        self._samples: deque[tuple[float, int]] = deque(maxlen=64)

    def moved(self, done: int, total: int, now: float) -> bool:
        """Keeps the counts; True where they are to be shown: after the interval, and at a known end."""
        last = self.done < total <= done and total == self.total
        if done < self.done or total != self.total:  # another piece of the same kind of work
            self._samples.clear()
        if (done, total) != (self.done, self.total) or not self._samples:
            self.done, self.total, self.pending = done, total, True
        return self.pending and (last or now - self._shown >= INTERVAL)

    def counts(self, now: float) -> dict[str, Any]:
        """The present counts, which are shown now."""
        self.pending, self._shown = False, now
        self._samples.append((now, self.done))
        began, before = self._samples[0]
        rate = (self.done - before) / (now - began) if now > began else 0.0
        left = max(self.total - self.done, 0)
        seconds = left / rate if rate else None if left else 0.0
        return {
            "work": self.name,
            "unit": self.unit,
            "done": self.done,
            "total": self.total or None,
            "rate": round(rate, 3) or None,
            "seconds_left": round(seconds, 1) if self.total and seconds is not None else None,
        }
