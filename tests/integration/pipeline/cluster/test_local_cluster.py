"""Jobs on a Dask cluster of this machine give the bytes of the local engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import ImagesRequest
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from tests.support.cluster import HOME, build_images, entries, local_cluster, request_of, verdicts
from tests.support.families import PROJECT as ROOT

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
