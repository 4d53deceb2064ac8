"""Workers that die, hang, eat memory or raise lose one job; builds that are killed lose nothing that was
finished."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from aotforge.compile.pool import WorkerLimits
from aotforge.errors import CacheError, CompileError, ToolchainError
from tests.integration.compile.builds import (
    build,
    entries,
    kinds,
    lines,
    remaining_workers,
    start,
    workers_of,
)
from tests.support.families import KERNEL, write_family, write_many

pytestmark = pytest.mark.compiler

# a kernel module may import Triton only, and through it reaches what it needs to misbehave
_CRASH = "triton.runtime.cache.os.abort()\n"
_HANG = "while True:\n    pass\n"
_EAT = "HOARD = b'x' * (2 << 30)\nwhile True:\n    pass\n"
_RAISE = "raise ValueError('broken on purpose')\n"


@pytest.mark.parametrize(
    ("fault", "limits", "reason"),
    [
        (_CRASH, WorkerLimits(), "SIGABRT"),
        (_HANG, WorkerLimits(job_seconds=2), "no answer in 2 s"),
        (_EAT, WorkerLimits(memory_bytes=900 << 20), "used more than 0.88 GiB"),
        (_RAISE, WorkerLimits(), "broken on purpose"),
    ],
    ids=["crash", "hang", "eat", "raise"],
)
def test_a_worker_in_trouble_loses_one_job_which_is_tried_twice(
    tmp_path: Path, fault: str, limits: WorkerLimits, reason: str
) -> None:
    root = write_many(tmp_path / "k", 3)
    if limits.job_seconds < 10:  # the others must not depend on how fast this machine is
        build(root, tmp_path / "cache")
    write_family(root, "bad", KERNEL + fault)
    with pytest.raises(CompileError) as caught:
        build(root, tmp_path / "cache", limits=limits, jobs=2)
    text = str(caught.value)
    assert "1 of 4 compile jobs failed twice" in text
    assert reason in text
    assert "./dev compile --job bad.bad:gfx908:0 --arch gfx908 --profile full" in text
    assert len(entries(tmp_path / "cache")) == 3
    assert remaining_workers(root) == []


def test_the_second_try_is_in_a_fresh_worker_and_may_succeed(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 2)
    marker = tmp_path / "marker"
    once = f"""
if not triton.runtime.cache.os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w").close()
    triton.runtime.cache.os.abort()
"""
    write_family(root, "flaky", KERNEL + once)
    images, events = build(root, tmp_path / "cache")
    assert len(images) == 3
    assert kinds(events) == {"scanned": 1, "compiled": 3, "retry": 1}
    assert next(event.label for event in events if event.kind == "retry") == "flaky.flaky:gfx908:0"


def test_workers_that_cannot_start_are_a_toolchain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_many(tmp_path / "k", 1)
    broken = tmp_path / "broken" / "triton"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no code generator here')\n")
    monkeypatch.setattr("aotforge.compile.pool.import_path", lambda: [str(broken.parent), str(Path.cwd())])
    with pytest.raises(ToolchainError, match="no code generator here"):
        build(root, tmp_path / "cache")


def test_source_that_changes_after_planning_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_many(tmp_path / "k", 1)
    from aotforge.compile.scheduler import Scheduler

    run = Scheduler.run

    def edit_first(self: Scheduler) -> None:
        write_family(root, "f00", KERNEL.replace("+ 1", "+ 77"))
        run(self)

    monkeypatch.setattr(Scheduler, "run", edit_first)
    with pytest.raises(CompileError, match="changed after the plan was made"):
        build(root, tmp_path / "cache")
    assert entries(tmp_path / "cache") == {}


def test_a_killed_build_resumes_where_it_was(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 12)
    build(root, tmp_path / "undisturbed")
    wanted = entries(tmp_path / "undisturbed")
    folder = tmp_path / "cache"
    dice = random.Random(7)
    made: list[str] = []
    for _ in range(6):
        before = set(entries(folder))
        process = start(root, folder)
        # counted in events, not seconds, so that every round gets somewhere on any machine
        assert process.stdout
        output = [process.stdout.readline() for _ in range(dice.randint(1, 3))]
        time.sleep(dice.random() / 20)
        process.send_signal(signal.SIGKILL)
        output += process.stdout.readlines()
        process.wait()
        reported = [event["key"] for event in lines("".join(output)) if event.get("kind") == "compiled"]
        stored = set(entries(folder)) - before
        assert set(reported) <= stored
        assert not before & set(reported)
        made += sorted(stored)
        _gone(root)
    _, events = build(root, folder)
    assert kinds(events)["damaged"] == 0
    made += [event.key for event in events if event.kind == "compiled"]
    assert sorted(made) == sorted(wanted)  # each exactly once
    assert entries(folder) == wanted
    assert list((folder / "images-1" / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_build_that_ends_takes_its_busy_workers_along(tmp_path: Path, number: signal.Signals) -> None:
    root = write_many(tmp_path / "k", 2)
    write_family(root, "bad", KERNEL + _HANG)
    process = start(root, tmp_path / "cache")
    assert process.stdout
    events = [lines(process.stdout.readline())[0]["kind"] for _ in range(3)]
    assert events == ["scanned", "compiled", "compiled"]
    assert workers_of(root)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode != 0
    _gone(root)
    assert len(entries(tmp_path / "cache")) == 2


def test_two_builds_at_once_share_the_work(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 10)
    folder = tmp_path / "cache"
    builds = [start(root, folder, jobs=1), start(root, folder, jobs=1)]
    outputs = [lines(process.communicate(timeout=300)[0]) for process in builds]
    assert [process.returncode for process in builds] == [0, 0]
    compiled = [e["key"] for output in outputs for e in output if e.get("kind") == "compiled"]
    assert len(compiled) == len(set(compiled)) == 10
    assert outputs[0][-1]["digests"] == outputs[1][-1]["digests"]


def test_damaged_entries_are_compiled_again_and_reported(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 5)
    folder = tmp_path / "cache"
    build(root, folder)
    wanted = entries(folder)
    paths = sorted(folder.glob("images-1/??/*"))
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].write_bytes(b"")
    paths[3].write_bytes(data)
    _, events = build(root, folder)
    assert kinds(events) == {"damaged": 4, "scanned": 1, "compiled": 4}
    assert {event.key for event in events if event.kind == "damaged"} == {path.name for path in paths[:4]}
    assert entries(folder) == wanted


def _gone(root: Path) -> None:
    """Workers die with their builder, but the kernel takes a moment to deliver that."""
    for _ in range(2400):
        if not workers_of(root):
            return
        time.sleep(0.05)
    raise AssertionError(f"orphans: {workers_of(root)}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(folder)], check=False
    )
    if made.returncode:
        pytest.skip("this machine does not let tests mount")
    return folder


def test_a_full_disk_is_reported_and_keeps_finished_images(tmp_path: Path, small_disk: Path) -> None:
    root = write_many(tmp_path / "k", 12)
    try:
        with pytest.raises(CacheError, match="No space left") as caught:
            build(root, small_disk / "cache")
        assert "free space" in caught.value.hint
        kept = entries(small_disk / "cache")
        build(root, tmp_path / "other")
        wanted = entries(tmp_path / "other")
        assert kept == {key: wanted[key] for key in kept}
        assert remaining_workers(root) == []
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
        _, events = build(root, small_disk / "cache")
        assert kinds(events)["compiled"] == 12 - len(kept)
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        _, events = build(root, small_disk / "cache")  # reading needs no writing
        assert kinds(events) == {"scanned": 1}
        write_family(root, "new", KERNEL.replace("+ 1", "+ 99"))
        with pytest.raises(CacheError, match="Read-only file system"):
            build(root, small_disk / "cache")
    finally:
        subprocess.run(["umount", str(small_disk)], check=True)
