"""A recorded build as a Chrome trace, which https://ui.perfetto.dev opens: stages and jobs over time."""

import json
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from aotforge.pipeline.build_record import BuildRecord, TimedJob

_SLACK = 0.25
"""A job's end is when its result arrives: the next one on its worker may seem to begin earlier, by this or a
quarter of the job's time."""

_STAGES = 1
"""The trace's process of the stages; jobs are threads of the ones above it."""


def build_trace(record: BuildRecord) -> str:
    """The trace as JSON; the same text for the same record. Jobs without a known begin are left out."""
    events = [*_stages(record)]
    for process, (name, jobs) in enumerate(
        (("compiled", record.compiled), ("executed", record.executed)), _STAGES + 1
    ):
        events.append(_name(process, name))
        events += _jobs(process, jobs)
    counts = {name: getattr(record, name) for name in ("cached", "shared", "known", "cpu_seconds")}
    facts = {"build": record.name, "state": record.state, "command": record.command, "error": record.error}
    return json.dumps({"traceEvents": events, "otherData": facts | counts}, indent=0) + "\n"


def _name(process: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


def _event(
    process: int, thread: int, name: str, began: float, seconds: float, **facts: object
) -> dict[str, object]:
    """A complete event; times are microseconds."""
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "ts": round(began * 1e6),
        "dur": round(seconds * 1e6),
        "args": facts,
    }


def _stages(record: BuildRecord) -> Iterator[dict[str, object]]:
    """One after the other; the last one of a build that has not ended lasts until now."""
    yield _name(_STAGES, f"build {record.name}, {record.state}")
    began = 0.0
    for number, stage in enumerate(record.stages, 1):
        is_open = number == len(record.stages) and record.state in ("running", "killed")
        seconds = max(record.seconds - began, 0.0) if is_open else stage.seconds
        yield _event(_STAGES, 0, stage.name, began, seconds)
        began += seconds


def _jobs(process: int, jobs: Iterable[TimedJob]) -> Iterator[dict[str, object]]:
    """Each in the first thread that is free when it begins: a record does not have its worker."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    known = [(job.began, job) for job in jobs if job.began is not None]
    for began, job in sorted(known, key=lambda pair: (pair[0], pair[1].label)):
        while busy and busy[0][0] <= began:
            heappush(free, heappop(busy)[1])
        thread = heappop(free) if free else len(busy)
        heappush(busy, (began + job.seconds - min(_SLACK, job.seconds / 4), thread))
        yield _event(process, thread, job.label, began, job.seconds, peak_mib=job.peak_bytes >> 20)
