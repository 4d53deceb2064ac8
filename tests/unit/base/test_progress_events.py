"""Progress as JSON lines: what a program reads, how often, and what a text of others can do to it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from aotforge.base.progress import INTERVAL, EventLines, byte_counter, progress


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def events_of(text: str) -> list[dict[str, Any]]:
    """Every line is an event; without its time."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(one.pop("time"), float) for one in found)
    return found


def lines() -> tuple[io.StringIO, Clock, EventLines]:
    stream, clock = io.StringIO(), Clock()
    return stream, clock, EventLines(stream, clock)


def test_stages_and_work_of_a_build() -> None:
    stream, clock, shown = lines()
    with shown:
        shown.stage("runtime library")
        clock.now = 2.0
        shown.stage("12 images")
        shown.begin("compiling")
        shown.update(2, 12)  # were in the cache
        clock.now = 4.0
        shown.job("failed", "flash.attn_fwd", "killed")
        shown.update(6, 12)
        shown.note("a fact")
    work = {"stage": "12 images", "work": "compiling"}
    counts = {"event": "progress", **work, "unit": "jobs", "total": 12}
    assert events_of(stream.getvalue()) == [
        {"event": "started", "stage": "runtime library"},
        {"event": "finished", "stage": "runtime library", "seconds": 2.0, "ok": True},
        {"event": "started", "stage": "12 images"},
        {**counts, "done": 2, "rate": None, "seconds_left": None},
        {"event": "job", **work, "job": "flash.attn_fwd", "outcome": "failed", "detail": "killed"},
        {**counts, "done": 6, "rate": 2.0, "seconds_left": 3.0},
        {"event": "note", "text": "a fact"},
        {"event": "finished", "stage": "12 images", "seconds": 2.0, "ok": True},
    ]


def test_lines_a_second_are_bounded_and_the_last_counts_are_written() -> None:
    stream, clock, shown = lines()
    shown.begin("compiling")
    for done in range(10_001):
        clock.now = done / 10_000  # one second in all
        shown.update(done, 20_000)
    written = [one for one in events_of(stream.getvalue()) if one["event"] == "progress"]
    assert 3 <= len(written) <= 1 / INTERVAL + 1
    with shown:
        shown.update(10_002, 20_000)  # too early for an event
    assert [one.get("done") for one in events_of(stream.getvalue())][-2:] == [10_002, None]


@pytest.mark.parametrize("totals", [lambda n: n, lambda n: n - 1, lambda n: 0], ids=["equal", "less", "none"])
def test_a_total_that_is_reached_with_every_update_is_bounded_too(totals: Any) -> None:
    stream, _, shown = lines()
    shown.begin("reading", "bytes")
    for done in range(1, 1000):
        shown.update(done, totals(done))
    assert len(stream.getvalue().splitlines()) <= 3


def test_the_end_of_a_work_is_written_at_once() -> None:
    stream, _, shown = lines()
    shown.begin("verifying")
    for done in range(6):
        shown.update(done, 5)
    last = events_of(stream.getvalue())[-1]
    assert (last["done"], last["seconds_left"]) == (5, 0.0)


def test_a_rate_is_that_of_the_latest_events() -> None:
    """Verdicts that were known are counted within a second; the others take a minute each."""
    stream, clock, shown = lines()
    shown.begin("verifying")
    shown.update(0, 2000)
    clock.now = 1.0
    shown.update(1000, 2000)
    for minute in range(100):
        clock.now = 61.0 + 60.0 * minute
        shown.update(1001 + minute, 2000)
    last = events_of(stream.getvalue())[-1]
    assert last["rate"] == pytest.approx(1 / 60, abs=1e-3)


def test_kinds_of_work_that_alternate_keep_their_counts() -> None:
    stream, clock, shown = lines()
    shown.stage("images")
    for done in range(1, 4):
        clock.now = float(done)
        for work in ("compiling", "verifying"):
            shown.begin(work)
            shown.update(done, 4)
    found = events_of(stream.getvalue())
    assert [one["event"] for one in found] == ["started", *["progress"] * 6]
    assert [one["rate"] for one in found[-2:]] == [1.0, 1.0]


def test_an_error_ends_a_stage_that_is_not_ok() -> None:
    stream, _, shown = lines()
    with pytest.raises(OSError, match="full"), shown:
        shown.stage("tarballs")
        raise OSError("full")
    assert events_of(stream.getvalue())[-1] == {
        "event": "finished", "stage": "tarballs", "seconds": 0.0, "ok": False,
    }  # fmt: skip


def test_bytes_are_exact_and_each_transfer_is_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(quiet=True, events=True) as shown_bytes:
        for stage, total in (("checking", 7), ("sending", 3_000_000)):
            byte_counter(shown_bytes.bytes, stage, total)(total)
    shown = capsys.readouterr()
    found = events_of(shown.err)
    assert shown.out == ""
    assert [(one["event"], one["stage"]) for one in found] == [
        (event, stage)
        for stage in ("checking", "sending")
        for event in ("started", "progress", "finished")
    ]  # fmt: skip
    assert [(one["done"], one["total"], one["unit"]) for one in found if one["event"] == "progress"] == [
        (7, 7, "bytes"), (3_000_000, 3_000_000, "bytes"),
    ]  # fmt: skip


def test_a_text_of_others_stays_in_its_line_and_in_its_string() -> None:
    stream = io.StringIO()
    attack = 'a\n{"event": "finished"}\r\x1b[2J\x7f\x9b\u2028\udcff'
    with progress(stream=stream, events=True) as shown:
        shown.note(attack)
    written = stream.getvalue()
    assert written.isascii() and written[:-1].isprintable() and written.count("\n") == 1
    assert events_of(written) == [{"event": "note", "text": attack}]


def test_lines_are_flushed_one_by_one() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(raw, 1 << 16))
    shown = EventLines(stream)
    shown.stage("one")
    assert raw.getvalue().count(b"\n") == 1
