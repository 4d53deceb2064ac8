"""One HTML page of a recorded build: stages and jobs over time, slowest jobs, cache hits."""

from aotforge.base.html import render
from aotforge.devtools.build_timeline import timeline
from aotforge.pipeline.build_record import BuildRecord, TimedJob

SLOWEST = 25


def build_page(record: BuildRecord) -> str:
    """The page, without scripts, fonts or links; the same text for the same record."""
    return render(
        "build_report.html",
        record=record,
        timeline=timeline(record),
        longest=max((one.seconds for one in record.stages), default=0.0),
        tables=(
            ("Slowest compile jobs", _slowest(record.compiled), sum(one.seconds for one in record.compiled)),
            ("Slowest executions", _slowest(record.executed), sum(one.seconds for one in record.executed)),
        ),
        caches=(
            ("images", len(record.compiled), record.cached, record.shared),
            ("verdicts", len(record.executed), record.known, 0),
        ),
        peak=max((one.peak_bytes for one in record.compiled), default=0),
    )


def _slowest(jobs: list[TimedJob]) -> list[TimedJob]:
    return sorted(jobs, key=lambda one: (-one.seconds, one.label))[:SLOWEST]
