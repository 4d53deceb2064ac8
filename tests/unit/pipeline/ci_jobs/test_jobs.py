"""Jobs follow from manifests and plans: every image in one job, releases after their shards."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import ShardError, UnknownNameError
from aotforge.pipeline.ci_jobs.changes import Affected
from aotforge.pipeline.ci_jobs.ci_manifest import Division, load_ci_manifest
from aotforge.pipeline.ci_jobs.ci_plan import GROUPS, matrix_github, matrix_json
from aotforge.pipeline.ci_jobs.jobs import (
    PARTS,
    CiJob,
    estimate,
    find_job,
    make_jobs,
    shard_count,
)
from aotforge.plan.planner import plan_project
from tests.support.families import PROJECT

MANIFEST = load_ci_manifest(PROJECT / "manifests").model_copy(
    update={"executor": "local", "platforms": ("linux",)}
)
PLANS = tuple(plan_project(PROJECT, archs=[arch], profile="quick") for arch in ("gfx908", "gfx90a"))
PACKS = frozenset(plan.pack for plan in PLANS)
ALL = Affected(packs=PACKS, runtime=True)


def jobs_of(affected: Affected = ALL, shards: int = 2) -> tuple[CiJob, ...]:
    return make_jobs(MANIFEST, "quick", PLANS, affected, shards=shards)


def test_a_matrix_of_two_archs() -> None:
    jobs = jobs_of()
    assert [job.name for job in jobs] == [
        *("lint", "docs", "test", "test-bare", "runtime-linux"),
        *(f"images-amd-{arch}-quick-{n}of2" for arch in ("gfx908", "gfx90a") for n in (1, 2)),
        "release-quick",
    ]
    assert jobs[5].line == f"./dev build --arch gfx908 --profile quick --shard 1/2 --output {PARTS}"
    assert jobs[-1].needs == tuple(job.name for job in jobs[4:-1])
    assert jobs[-1].line.startswith("./dev build --arch gfx908,gfx90a --profile quick --gather ")
    assert len({job.artefact for job in jobs if job.artefact}) == 6


def test_a_release_gets_exactly_the_shards_of_the_other_jobs() -> None:
    jobs = {job.name: job for job in jobs_of()}
    release = jobs["release-quick"]
    assert {jobs[need].output for need in release.needs} == {release.inputs}
    # what the workflow downloads by this pattern is what the release needs, no more
    assert {job.name for job in jobs.values() if job.artefact.startswith("part-")} == set(release.needs)


def test_every_job_that_builds_requests_containers() -> None:
    manifest = MANIFEST.model_copy(update={"executor": "docker"})
    for job in make_jobs(manifest, "quick", PLANS, ALL, shards=2):
        assert job.line.endswith(" --executor docker") == (job.kind != "check")
        assert job.executor == ("local" if job.kind == "check" else "docker")


def test_the_library_for_windows_is_a_job_of_its_own() -> None:
    manifest = MANIFEST.model_copy(update={"platforms": ("linux", "windows")})
    jobs = {job.name: job for job in make_jobs(manifest, "quick", PLANS, ALL, shards=2)}
    windows = jobs["runtime-windows"]
    assert windows.line == "./dev build --platform windows --output ci-out/windows"
    assert windows.packages == ("g++-mingw-w64-x86-64-posix", "llvm-19")
    assert windows.name not in jobs["release-quick"].needs
    assert set(jobs) - {"runtime-windows"} == {job.name for job in jobs_of()}
    (row,) = json.loads(matrix_github([windows]).splitlines()[1].partition("=")[2])
    assert row["packages"] == "g++-mingw-w64-x86-64-posix llvm-19"


def test_checks_are_programs_of_the_checkout() -> None:
    """The suite is a job twice: with every tool that it can use, and on a machine with Python, venv and g++ alone."""
    commands = {job.name: job.command[0] for job in jobs_of() if job.kind == "check"}
    assert commands == {"lint": "./dev", "docs": "./dev", "test": ".ci/run", "test-bare": ".ci/bare"}
    assert all(os.access(PROJECT / command, os.X_OK) for command in commands.values())


def test_nothing_affected_leaves_the_checks() -> None:
    assert [job.kind for job in jobs_of(Affected(packs=frozenset(), runtime=False))] == ["check"] * 4


def test_one_affected_pack_is_built_and_merged_alone() -> None:
    jobs = jobs_of(Affected(packs=frozenset({"amd-gfx90a"}), runtime=True))
    assert not any("gfx908" in job.line for job in jobs)
    assert [job.kind for job in jobs] == [*["check"] * 4, "runtime", "images", "images", "release"]


def test_a_change_of_the_library_alone_is_merged_with_the_first_pack() -> None:
    jobs = jobs_of(Affected(packs=frozenset(), runtime=True))
    assert jobs == jobs_of(Affected(packs=frozenset({"amd-gfx908"}), runtime=True))


@given(minutes=st.integers(2, 60), setup=st.integers(1, 59), cpus=st.integers(1, 64))
def test_shards_are_as_few_as_the_target_allows(minutes: int, setup: int, cpus: int) -> None:
    if minutes <= setup:
        return
    division = MANIFEST.division.model_copy(
        update={"minutes_per_job": minutes, "setup_minutes": setup, "cpus": cpus}
    )
    count = shard_count(PLANS[0], division)
    assert 1 <= count <= len(PLANS[0].jobs)
    work = estimate(PLANS[0].jobs, division) - setup
    assert work / count <= minutes - setup + 1e-9
    assert count == 1 or work / (count - 1) > minutes - setup


def test_more_jobs_than_a_matrix_may_have_are_refused() -> None:
    with pytest.raises(ShardError, match="more than the 256"):
        jobs_of(shards=200)


def test_a_misspelt_job_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown CI job relase-quick") as caught:
        find_job(jobs_of(), "relase-quick")
    assert "release-quick" in str(caught.value)


def test_github_gets_every_job_once_on_a_line_per_matrix() -> None:
    jobs = jobs_of()
    lines = dict(line.split("=", 1) for line in matrix_github(jobs).splitlines())
    assert list(lines) == list(GROUPS)
    rows = [row for text in lines.values() for row in json.loads(text)]
    assert [row["name"] for row in rows] == [job.name for job in jobs]
    nothing = matrix_github(jobs_of(Affected(packs=frozenset(), runtime=False)))
    assert nothing.splitlines()[1:] == ["builds=[]", "release=[]"]


def test_json_has_everything() -> None:
    tree = json.loads(matrix_json(jobs_of(), ["why"]))
    assert tree["reasons"] == ["why"]
    assert [row["line"] for row in tree["jobs"]] == [job.line for job in jobs_of()]


def test_a_division_that_leaves_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves nothing"):
        Division(minutes_per_job=4, setup_minutes=4, cpus=1, seconds_per_unit=1.0)
