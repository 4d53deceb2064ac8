"""Jobs on a Dask cluster of this machine give the bytes of the local engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import ClusterError
from aotforge.pipeline.cluster.job_queue import LOSSES
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import ImagesRequest
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from tests.support.cluster import (
    HOME,
    Results,
    build_images,
    entries,
    local_cluster,
    open_queue,
    request_of,
    verdicts,
)
from tests.support.families import PROJECT as ROOT
from tests.support.families import toolchain

pytestmark = pytest.mark.compiler
pytest.importorskip("distributed", reason="the packages of --engine dask are not installed")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with local_cluster() as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def plan() -> Plan:
    request = ImagesRequest(root=ROOT, archs=("gfx908",), profile="smoke", cache=HOME / "cache")
    (made,) = make_plans(request, only=Only(("add",)))
    return made


def test_images_and_verdicts_are_those_of_the_local_engine(
    tmp_path: Path, scheduler: str, plan: Plan
) -> None:
    there = build_images(request_of(tmp_path, scheduler), plan)
    kinds = Counter(event.kind for event in there.events)
    assert kinds == {"scanned": 1, "compiled": len(plan.jobs)}, there.notes
    assert [event.verdict.cached for event in there.verdicts] == [False] * len(plan.jobs)
    local = request_of(tmp_path, "", engine="local", cache=HOME / "cache", cache_to=None)
    build_images(local, plan)
    found, known = entries(tmp_path / "cache"), entries(HOME / "cache")
    assert found == {job.key: known[job.key] for job in plan.jobs}
    found_verdicts, known_verdicts = verdicts(tmp_path / "cache"), verdicts(HOME / "cache")
    assert len(found_verdicts) == len(plan.jobs)
    assert found_verdicts == {key: known_verdicts[key] for key in found_verdicts}
    # the index that the build has signed serves another machine
    empty = request_of(tmp_path, "", engine="local", cache=tmp_path / "other")
    reader = build_images(empty, plan)
    assert [event.kind for event in reader.events] == ["scanned"]
    assert all(event.verdict.cached for event in reader.verdicts)


def test_jobs_outlive_workers_and_objects(tmp_path: Path, scheduler: str) -> None:
    results, notes = Results(), list[str]()
    with open_queue(request_of(tmp_path, scheduler), notes) as (queue, order):
        orders = [order("sleep", f"s{number}") for number in range(6)]
        orders += [order(kind, kind, folder=str(tmp_path / "once")) for kind in ("crash", "damage")]
        queue.run([*orders, order("fail", "fail")], results)
    assert results.objects == {one.key: f"object of {one.key}".encode() for one in orders}
    assert results.failures == ["does not compile"] * 2
    assert any("has other content" in reason for reason in results.losses)


def test_a_job_that_is_lost_too_often_ends_the_build_and_is_named(tmp_path: Path, scheduler: str) -> None:
    results = Results()
    with (
        open_queue(request_of(tmp_path, scheduler), []) as (queue, order),
        pytest.raises(ClusterError, match=rf"lose this was lost {LOSSES} times.*the place does not answer"),
    ):
        queue.run([order("lose", "this")], results)
    assert len(results.losses) == LOSSES - 1


def test_workers_of_another_toolchain_are_refused_and_named(tmp_path: Path, scheduler: str) -> None:
    results, notes = Results(), list[str]()
    request = request_of(tmp_path, scheduler, worker_minutes=0.01)
    other = replace(toolchain(), llvm_revision="another")
    with (
        open_queue(request, notes, compiler=other) as (queue, order),
        pytest.raises(ClusterError, match=r"no usable worker.*llvm_revision .*, not another"),
    ):
        queue.run([order("sleep", "this")], results)
    assert not results.objects
    assert len(notes) == 2  # one machine, and the statistics of the place
    assert re.match(r"worker tcp://.* is not used: its toolchain has llvm_revision", notes[0])


@pytest.mark.slow
def test_a_scheduler_with_certificates(tmp_path: Path) -> None:
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    security = Security.temporary()
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    preload = {"preload": ["tests.support.cluster_jobs"], "env": {"AOTFORGE_CACHE": str(HOME / "cache")}}
    with LocalCluster(protocol="tls", security=security, **options, **preload) as cluster:
        request = request_of(tmp_path, cluster.scheduler_address)
        assert cluster.scheduler_address.startswith("tls://")
        with (
            pytest.raises(ClusterError, match=r"scheduler tls://.* cannot be used"),
            open_queue(request, []) as (queue, order),
        ):
            queue.run([order("sleep", "this")], Results())
        client = {"cert": security.tls_client_cert, "key": security.tls_client_key}
        with dask.config.set(
            {"distributed.comm.tls.ca-file": security.tls_ca_file, "distributed.comm.tls.client": client}
        ):
            results = Results()
            with open_queue(request, []) as (queue, order):
                queue.run([order("sleep", "this")], results)
        assert results.objects == {"this": b"object of this"}
