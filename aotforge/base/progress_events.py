"""Progress as events for programs: one JSON object per line (docs/errors.md)."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from aotforge.base.progress import Progress, Unit

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
