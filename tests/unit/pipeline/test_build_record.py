"""Records of builds: what they have, who is running, what a page shows of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.progress import SILENT
from aotforge.compile.model import CompileEvent
from aotforge.devtools.build_report import build_trace
from aotforge.errors import CompileError
from aotforge.pipeline.build_record import KEPT, BuildRecord, TimedJob, read_records, recorded
from aotforge.verify.verdict import VerifyEvent
from tests.unit.verify.test_verdicts import PASSED

COMPILED = CompileEvent(
    kind="compiled",
    key="k",
    label="add.<kernel>:1",
    detail="",
    done=3,
    total=4,
    seconds=2.5,
    peak_bytes=3 << 20,
)


class Silent:
    stage, note = SILENT.stage, SILENT.note

    def event(self, event: CompileEvent) -> None: ...

    def verdict(self, event: VerifyEvent) -> None: ...


def build(cache: Path, *, command: tuple[str, ...] = ("build",)) -> BuildRecord:
    with recorded(cache, command, cache, Silent()) as observer:
        observer.stage("compiling")
        observer.event(replace(COMPILED, kind="scanned", label="", done=2, seconds=0.0))
        observer.event(COMPILED)
        observer.stage("verifying")
        observer.verdict(VerifyEvent(verdict=replace(PASSED, seconds=7.5), done=1, total=2))
        observer.verdict(VerifyEvent(verdict=replace(PASSED, cached=True), done=2, total=2))
        (running,) = (one for one in read_records(cache) if one.state == "running")
        assert [stage.name for stage in running.stages] == ["planning", "compiling", "verifying"]
        observer.note("a note")
        observer.release = "/a/release"
        observer.end("finished")
    return next(one for one in read_records(cache) if one.name == running.name)


def test_a_finished_build(tmp_path: Path) -> None:
    record = build(tmp_path)
    assert (record.state, record.release, record.notes) == ("finished", "/a/release", ["a note"])
    assert (record.cached, record.known) == (2, 1)
    # these times are longer than that of the build: jobs begin with it at the earliest
    assert record.compiled == [TimedJob(label=COMPILED.label, seconds=2.5, peak_bytes=3 << 20, began=0.0)]
    assert record.executed == [TimedJob(label=PASSED.label, seconds=7.5, began=0.0)]
    assert 0 < sum(one.seconds for one in record.stages) <= record.seconds + 0.01
    assert record.cpu_seconds > 0
    assert "1 compiled, 2 cached; 1 executed, 1 known" in record.line()


def test_a_failed_and_an_interrupted_build(tmp_path: Path) -> None:
    for error, state in (
        (CompileError("3 of 4 compile jobs failed"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
    ):
        with pytest.raises(type(error)), recorded(tmp_path, ["build"], tmp_path, Silent()) as observer:
            observer.stage("compiling")
            raise error
        assert [one.state for one in read_records(tmp_path)].count(state) == 1
    assert any("3 of 4 compile jobs failed" in one.line() for one in read_records(tmp_path))


def test_what_is_refused_before_the_first_stage_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CompileError), recorded(tmp_path, ["build"], tmp_path, Silent()):
        raise CompileError("refused")
    assert list(tmp_path.iterdir()) == []


def killed_build(cache: Path) -> None:
    with recorded(cache, ["build"], cache, Silent()) as observer:
        observer.stage("compiling")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_build_is_not_running(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=killed_build, args=(tmp_path,))
    process.start()
    process.join()
    assert [one.state for one in read_records(tmp_path)] == ["killed"]


def test_secrets_of_addresses_are_not_kept(tmp_path: Path) -> None:
    words = (
        "build",
        "--cache-from",
        "https://user:pa55@host/x?token=pa55",
        "--cache-to=https://u:pa55@host/",
    )
    record = build(tmp_path, command=words)
    assert record.command == ["build", "--cache-from", "https://host/x", "--cache-to=https://host"]
    assert "pa55" not in (tmp_path / "builds" / f"{record.name}.json").read_text()


def test_old_records_and_only_records_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "builds"
    folder.mkdir()
    (folder / "mine.json").write_text("{}")
    for number in range(KEPT + 3):
        (folder / f"20200101-000000-{number:06x}.json").write_text("{}")
    build(tmp_path)
    assert len(list(folder.iterdir())) == KEPT + 1
    assert (folder / "mine.json").exists()
    assert len(read_records(tmp_path)) == 1  # the others are not of this format


def test_a_cache_that_cannot_be_written_does_not_stop_a_build(tmp_path: Path) -> None:
    (tmp_path / "builds").write_text("a file")
    with recorded(tmp_path, ["build"], tmp_path, Silent()) as observer:
        observer.stage("compiling")
        observer.end("finished")
    assert read_records(tmp_path) == []


def test_the_trace_of_a_build(tmp_path: Path) -> None:
    record = build(tmp_path)
    text = build_trace(record)
    assert text == build_trace(read_records(tmp_path)[0])
    trace = json.loads(text)
    bars = {event["name"]: event for event in trace["traceEvents"] if event["ph"] == "X"}
    assert list(bars)[:3] == ["planning", "compiling", "verifying"]
    assert bars[COMPILED.label]["dur"] == 2_500_000 and bars[COMPILED.label]["args"] == {"peak_mib": 3}
    assert {event["pid"] for event in trace["traceEvents"]} == {1, 2, 3}
    assert trace["otherData"]["state"] == "finished"


def test_jobs_at_the_same_time_are_in_threads_of_their_own() -> None:
    times = [(0.0, 10.0), (1.0, 2.0), (2.9, 4.0), (3.5, 1.0), (9.0, 5.0), (11.0, 1.0)]
    jobs = [TimedJob(label=str(n), seconds=s, began=b) for n, (b, s) in enumerate(times)]
    record = BuildRecord(name="n", command=[], folder="", pid=1, started=0, ended=20, compiled=jobs)
    events = json.loads(build_trace(record))["traceEvents"]
    threads = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
    assert threads == {"0": 0, "1": 1, "2": 1, "3": 2, "4": 1, "5": 0}


class Clock:
    """A clock that a test moves; encoding a record takes `encoding` seconds of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, encoding: float) -> None:
        self.now, self.encoded = 1000.0, 0
        self._encoding = encoding
        monkeypatch.setattr("aotforge.pipeline.build_record.time.monotonic", lambda: self.now)
        monkeypatch.setattr("aotforge.pipeline.build_record.json.dumps", self._dumps)

    def _dumps(self, data: object, **options: Any) -> str:
        self.now += self._encoding
        self.encoded += 1
        return json.JSONEncoder(**options).encode(data)


def test_a_jobs_begin_is_its_end_less_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, encoding=0.0)
    with recorded(tmp_path, ["build"], tmp_path, Silent()) as observer:
        observer.stage("compiling")
        clock.now += 10
        observer.event(COMPILED)
        observer.verdict(VerifyEvent(verdict=replace(PASSED, seconds=4.0004), done=1, total=1))
        observer.end("finished")
    (record,) = read_records(tmp_path)
    assert [one.began for one in (*record.compiled, *record.executed)] == [7.5, 6.0]


def test_a_long_record_is_written_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 46,000 jobs, a record took a third of a second to encode, every two seconds."""
    clock = Clock(monkeypatch, encoding=0.5)
    with recorded(tmp_path, ["build"], tmp_path, Silent()) as observer:
        observer.stage("compiling")
        for _ in range(200):
            clock.now += 1
            observer.event(COMPILED)
        observer.end("finished")
    assert clock.encoded == 2 + 200 // 51  # the first and the last one; others after 50 s


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    """As a killed build leaves them."""
    build(tmp_path)
    (tmp_path / "builds/20260101-000000-000000.json").write_text('{"format": 1, "na')
    assert len(read_records(tmp_path)) == 1
