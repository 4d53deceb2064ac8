"""Drawing of a recorded build over time: a bar per stage, and rows of jobs below.

A record has begin and duration of each job, but not its worker. A job is in the first row that is free when it begins, so there are
as many rows as there were jobs at a time. The number of bars is bounded; short neighbours share one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from aotforge.pipeline.build_record import BuildRecord, TimedJob

WIDTH = 1000.0
BARS = 4000
"""Most bars of jobs in a drawing; more jobs have more of them in one bar."""
ROWS = 1024
"""Most rows in a drawing; the jobs of the others are counted."""

_TOP, _STAGE, _GAP = 18.0, 20.0, 6.0
_CHARACTER = 6.2
_TITLE = 160
_SLACK = 0.25
"""A job's end is when the build receives its result: the next one on its worker may seem to begin earlier, by this or a quarter of the
job's time."""

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A stage or a job. `kind`: stage, compiled or executed; times in seconds after the build's begin."""

    kind: str
    label: str
    began: float
    seconds: float

    @property
    def ended(self) -> float:
        """Its end, in seconds after the build's begin."""
        return self.began + self.seconds


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A rectangle with a title, and a text where there is space. `busy`: share of its width that jobs take."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    busy: float
    text: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A drawing. `ticks`: positions and texts of the time axis; `omitted`: jobs without a bar; `unknown`: jobs whose begin is unknown."""

    height: float
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    rows: int
    omitted: int
    unknown: int


def timeline(record: BuildRecord) -> Timeline | None:
    """The drawing of a build; None when it took no time."""
    stages, jobs = [*_stages(record)], _jobs(record)
    span = max([record.seconds, *(one.ended for one in (*stages, *jobs))])
    if not (math.isfinite(span) and span > 0):
        return None
    scale = WIDTH / span
    rows = assign_rows(jobs)
    drawn = rows[:ROWS]
    top = _TOP + _STAGE + _GAP
    height = 16.0 if len(drawn) <= 24 else max(2.0, 400 / len(drawn))
    bars = [_bar([one], scale, _TOP, _STAGE) for one in stages]
    for number, row in enumerate(_grouped(drawn, 1 / scale)):
        bars += [_bar(group, scale, top + number * height, height - 1) for group in row]
    return Timeline(
        height=top + len(drawn) * height,
        bars=tuple(bars),
        ticks=tuple(_ticks(span, scale)),
        rows=len(rows),
        omitted=sum(map(len, rows[ROWS:])),
        unknown=sum(one.began is None for one in (*record.compiled, *record.executed)),
    )


def assign_rows(jobs: Sequence[Interval]) -> list[list[Interval]]:
    """Rows of jobs that do not overlap, but for `_SLACK`; a job is in the first row that is free."""
    rows: list[list[Interval]] = []
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for job in sorted(jobs, key=lambda one: (one.began, one.label)):
        while busy and busy[0][0] <= job.began:
            heappush(free, heappop(busy)[1])
        if not free:
            heappush(free, len(rows))
            rows.append([])
        row = heappop(free)
        rows[row].append(job)
        heappush(busy, (job.ended - min(_SLACK, job.seconds / 4), row))
    return rows


def _stages(record: BuildRecord) -> Iterator[Interval]:
    """One after the other; the last one of a build that has not ended lasts until now, or until the build was killed."""
    began = 0.0
    for number, one in enumerate(record.stages, 1):
        open_ended = number == len(record.stages) and record.state in ("running", "killed")
        seconds = max(record.seconds - began, 0.0) if open_ended else one.seconds
        yield Interval(kind="stage", label=one.name, began=began, seconds=seconds)
        began += seconds


def _jobs(record: BuildRecord) -> list[Interval]:
    def known(kind: str, jobs: list[TimedJob]) -> Iterator[Interval]:
        for one in jobs:
            if one.began is not None and one.seconds > 0:
                yield Interval(kind=kind, label=one.label, began=one.began, seconds=one.seconds)

    return [*known("compiled", record.compiled), *known("executed", record.executed)]


def _grouped(rows: Sequence[Sequence[Interval]], least: float) -> list[list[list[Interval]]]:
    """Groups of each row: neighbours that are both shorter than `least`, which grows until there are at most BARS groups."""
    while True:
        found = [_groups(row, least) for row in rows]
        if sum(map(len, found)) <= BARS:
            return found
        least *= 2


def _groups(row: Sequence[Interval], least: float) -> list[list[Interval]]:
    groups: list[list[Interval]] = []
    for job in row:
        last = groups[-1][-1] if groups else None
        if last and max(last.seconds, job.seconds, job.began - last.ended) < least:
            groups[-1].append(job)
        else:
            groups.append([job])
    return groups


def _bar(group: Sequence[Interval], scale: float, y: float, height: float) -> Bar:
    first, longest = group[0], max(group, key=lambda one: one.seconds)
    seconds, length = sum(one.seconds for one in group), group[-1].ended - first.began
    name = longest.label if len(longest.label) <= _TITLE else f"{longest.label[: _TITLE - 1]}…"
    when = f"from {clock(first.began)} to {clock(group[-1].ended)}"
    if len(group) > 1:
        text = f"{len(group)} jobs"
        title = f"{text}, {seconds:.1f} s, {when}; the longest: {name}, {longest.seconds:.1f} s"
    else:
        text, title = name, f"{name}: {seconds:.1f} s, {when}"
    width = max(length * scale, 0.5)
    space = int((width - 6) / _CHARACTER) if height >= 12 else 0
    return Bar(
        kind=first.kind,
        x=first.began * scale,
        y=y,
        width=width,
        height=height,
        busy=min(1.0, max(0.35, seconds / length)) if length > 0 else 1.0,
        text=(text if len(text) <= space else f"{text[: space - 1]}…") if space > 3 else "",
        title=title,
    )


def _ticks(span: float, scale: float) -> Iterator[tuple[float, str]]:
    step = next((one for one in _STEPS if span / one <= 8), span / 8)
    for number in range(int(span / step) + 1):
        yield number * step * scale, clock(number * step, step)


def clock(seconds: float, step: float = 0.1) -> str:
    """A time after the build's begin, as `7.5 s`, `2:05 min` or `1:02:05 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if step < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02} h" if minutes >= 60 else f"{minutes}:{rest:02} min"
