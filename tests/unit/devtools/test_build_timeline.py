"""Drawing of a build over time: rows of jobs, bounded bars, escaped labels."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from aotforge.devtools.build_report import build_page
from aotforge.devtools.build_timeline import BARS, ROWS, clock, timeline
from aotforge.pipeline.build_record import BuildRecord, Stage, TimedJob

HOSTILE = "</title></svg><script>alert('x')</script><img src=https://host/x onerror=y>"


def job(label: str, began: float, seconds: float) -> TimedJob:
    return TimedJob(label=label, seconds=seconds, began=began)


def record(*, stages: int = 1, seconds: float = 100.0, compiled: list[TimedJob] | None = None) -> BuildRecord:
    return BuildRecord(
        name="20261123-000000-abcdef",
        command=["build"],
        folder="/folder",
        pid=1,
        started=1000.0,
        ended=1000.0 + seconds,
        state="finished",
        stages=[Stage(name=f"stage {n}", seconds=seconds / stages) for n in range(stages)],
        compiled=compiled or [],
    )


def drawing(page: str) -> ET.Element:
    """The page's drawing, which must be well formed."""
    (found,) = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    return ET.fromstring(found)


def titles(page: str) -> dict[str, dict[str, str]]:
    """Attributes of each bar by its title."""
    return {bar.findtext("title") or "": bar.attrib for bar in drawing(page).iter("rect")}


def test_stages_follow_each_other_and_jobs_are_in_the_rows_of_their_workers() -> None:
    # two workers: the second job of the first worker seems to begin 0.05 s before the end of the first one
    jobs = [job("a", 10, 20), job("b", 10, 50), job("c", 29.95, 30.05), job("d", 70, 20)]
    bars = titles(build_page(record(stages=2, compiled=jobs)))
    assert {name: (one["x"], one["width"]) for name, one in bars.items()} == {
        "stage 0: 50.0 s, from 0.0 s to 50.0 s": ("0.0", "500.0"),
        "stage 1: 50.0 s, from 50.0 s to 1:40 min": ("500.0", "500.0"),
        "a: 20.0 s, from 10.0 s to 30.0 s": ("100.0", "200.0"),
        "b: 50.0 s, from 10.0 s to 1:00 min": ("100.0", "500.0"),
        "c: 30.1 s, from 29.9 s to 1:00 min": ("299.5", "300.5"),
        "d: 20.0 s, from 1:10 min to 1:30 min": ("700.0", "200.0"),
    }
    rows = {name[0]: one["y"] for name, one in bars.items() if not name.startswith("stage")}
    assert rows["a"] == rows["c"] == rows["d"]
    assert rows["a"] < rows["b"]


def test_compiled_and_executed_jobs_differ() -> None:
    found = record(compiled=[job("a", 0, 10)])
    found.executed = [job("b", 50, 10)]
    assert [one["class"] for one in titles(build_page(found)).values()] == ["stage", "compiled", "executed"]


def test_labels_are_escaped() -> None:
    found = record(compiled=[job(HOSTILE, 0, 90)])
    found.stages[0].name = HOSTILE
    page = build_page(found)
    assert "<script" not in page
    assert "<img" not in page
    assert {element.tag for element in drawing(page).iter()} == {"svg", "line", "rect", "title", "text"}
    assert f"{HOSTILE}: 90.0 s, from 0.0 s to 1:30 min" in titles(page)


def test_an_empty_record_has_no_drawing() -> None:
    assert "<svg" not in build_page(record(stages=1, seconds=0.0))
    assert timeline(replace(record(), started=1000.0, ended=float("nan"), stages=[])) is None


def test_the_last_stage_of_a_killed_build_lasts_until_its_end() -> None:
    found = replace(record(), state="killed", stages=[Stage(name="a", seconds=40.0), Stage(name="b")])
    assert "b: 60.0 s, from 40.0 s to 1:40 min" in titles(build_page(found))


@pytest.mark.parametrize(("count", "workers"), [(23_000, 64), (3_000, 2), (3_000, 500)])
def test_a_page_of_many_jobs_is_bounded_and_has_every_job(count: int, workers: int) -> None:
    seconds = 10.0 * count / workers
    label = "flash.attn_fwd:gfx908:" + "x" * 100
    jobs = [job(label, 10.0 * (n // workers), 0.5 + n % 90 / 10) for n in range(count)]
    found = record(seconds=seconds, compiled=jobs)
    drawn = timeline(found)
    assert drawn is not None
    assert (drawn.rows, drawn.omitted) == (workers, 0)
    bars = [one for one in drawn.bars if one.kind == "compiled"]
    groups = [re.match(r"(\d+) jobs, ", one.title) for one in bars]
    assert sum(int(one[1]) if one else 1 for one in groups) == count
    assert len(bars) <= BARS
    assert len(build_page(found)) < 2_000_000


def test_more_rows_than_are_drawn_are_counted() -> None:
    drawn = timeline(record(compiled=[job(f"job {n}", 0.0, 90.0) for n in range(ROWS + 8)]))
    assert drawn is not None
    assert (drawn.rows, drawn.omitted) == (ROWS + 8, 8)
    assert drawn.height < 2200


def test_times() -> None:
    assert [clock(0.4), clock(7.5, 1), clock(125), clock(3_725)] == ["0.4 s", "8 s", "2:05 min", "1:02:05 h"]
