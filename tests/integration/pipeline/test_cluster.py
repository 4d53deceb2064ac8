"""Jobs on a Dask cluster of this machine give the bytes of one machine, whatever happens to its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.compile.cache import Cache
from aotforge.compile.model import CompileEvent
from aotforge.errors import ClusterError
from aotforge.pipeline.images import ImageBuilder, make_plans
from aotforge.pipeline.requests import CachedRequest
from aotforge.pipeline.shared_cache import cluster_of
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from aotforge.verify.verdict import VerifyEvent
from tests.support.cluster import HOME, crash_once, echo, entries, fail, local_cluster, verdicts
from tests.support.families import PROJECT, toolchain

pytestmark = pytest.mark.compiler
pytest.importorskip("distributed", reason="the packages of --scheduler are not installed")


class Recorder:
    """An observer that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        self.verdicts: list[VerifyEvent] = []
        self.notes: list[str] = []
        self.event, self.verdict = self.events.append, self.verdicts.append
        self.note = self.notes.append

    def stage(self, text: str) -> None:
        pass


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with local_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def plan() -> Plan:
    (made,) = make_plans(request_of(HOME / "cache"), only=Only(("add",)))
    return made


def request_of(cache: Path, scheduler: str | None = None) -> CachedRequest:
    return CachedRequest(root=PROJECT, archs=("gfx908",), profile="smoke", cache=cache, scheduler=scheduler)


def build_images(request: CachedRequest, plan: Plan) -> Recorder:
    seen = Recorder()
    with Cache(request.cache) as cache, cluster_of(request, seen.note) as cluster:
        ImageBuilder(request=request, observer=seen, cache=cache, cluster=cluster).build(plan, verify=True)
    return seen


def run(
    scheduler: str,
    function: Any,
    *jobs: Any,
    notes: list[str] | None = None,
    patience: float = 60.0,
    **changes: Any,
) -> dict[str, Any]:
    """Results of a function on the cluster, by number of the job."""
    request = request_of(HOME / "cache", scheduler)
    with cluster_of(request, notes.append if notes is not None else lambda _: None) as cluster:
        assert cluster is not None
        cluster.patience = patience
        compiler = replace(toolchain(), **changes)
        return dict(cluster.map(function, {str(n): job for n, job in enumerate(jobs)}, compiler))


def test_images_and_verdicts_are_those_of_one_machine(tmp_path: Path, scheduler: str, plan: Plan) -> None:
    there = build_images(request_of(tmp_path, scheduler), plan)
    kinds = Counter(event.kind for event in there.events)
    assert kinds == {"scanned": 1, "compiled": len(plan.jobs)}, there.notes
    assert [event.verdict.cached for event in there.verdicts] == [False] * len(plan.jobs)
    build_images(request_of(HOME / "cache"), plan)
    images, known = entries(tmp_path), entries(HOME / "cache")
    assert images == {job.key: known[job.key] for job in plan.jobs}
    executed, known_verdicts = verdicts(tmp_path), verdicts(HOME / "cache")
    assert len(executed) == len(plan.jobs)
    assert executed == {key: known_verdicts[key] for key in executed}


def test_jobs_of_a_killed_worker_are_run_by_another(tmp_path: Path, scheduler: str) -> None:
    names = [f"job{number}" for number in range(4)]
    jobs = [(tmp_path, name) for name in names]
    assert sorted(run(scheduler, crash_once, *jobs).values()) == names


def test_a_job_that_no_worker_can_run_ends_the_build(scheduler: str) -> None:
    with pytest.raises(ClusterError, match=r"job 0 has no result: .*no space left"):
        run(scheduler, fail, ())


@pytest.mark.parametrize("changed", ["llvm_revision", ""])
def test_workers_of_another_version_are_refused_and_named(
    scheduler: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    if not changed:
        monkeypatch.setattr("aotforge.pipeline.cluster_worker.sources_digest", lambda root: "0" * 12)
    changes = {changed: "another"} if changed else {}
    with pytest.raises(ClusterError, match="has had no usable worker for 2 s; refused: tcp://"):
        run(scheduler, echo, ("this",), notes=notes, patience=2.0, **changes)
    assert len(notes) == 2
    reason = "it has another toolchain" if changed else "it has other sources"
    assert all(note.startswith("worker tcp://") and note.endswith(reason) for note in notes)


def test_a_worker_that_is_not_of_this_project_is_refused() -> None:
    notes: list[str] = []
    with local_cluster(1, preload="json") as address, pytest.raises(ClusterError, match="no usable worker"):
        run(address, echo, ("this",), notes=notes, patience=2.0)
    assert "without --preload aotforge.pipeline.cluster_worker" in notes[0]


def test_an_address_without_a_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotforge.pipeline.cluster.CONNECT_SECONDS", 1.0)
    with pytest.raises(ClusterError, match=r"the scheduler tcp://127\.0\.0\.1:9 cannot be used"):
        run("tcp://127.0.0.1:9", echo, ("this",))
