"""Every job in exactly one shard, the same one every time, and no shard much heavier than another."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import ShardError
from aotforge.pipeline.shards.split import Shard, parse_shard, split, weight
from aotforge.plan.model import CompileJob, Plan
from aotforge.plan.planner import plan_project
from tests.support.families import PROJECT


@cache
def plan(arch: str = "gfx908", profile: str = "core") -> Plan:
    return plan_project(PROJECT, archs=[arch], profile=profile)


@st.composite
def job_lists(draw: st.DrawFn) -> list[CompileJob]:
    """Jobs that differ in key and cost only."""
    pattern = plan().jobs[0]
    sizes = draw(st.lists(st.integers(2, 4096), max_size=40))
    return [
        replace(pattern, key=f"{number:064x}", constants=(("BLOCK", size),))
        for number, size in enumerate(sizes)
    ]


@given(jobs=job_lists(), count=st.integers(1, 12))
def test_every_job_is_in_exactly_one_shard_and_in_order(jobs: list[CompileJob], count: int) -> None:
    shards = split(jobs, count)
    assert len(shards) == count
    assert sorted(job.key for shard in shards for job in shard) == sorted(job.key for job in jobs)
    for shard in shards:
        assert list(shard) == [job for job in jobs if job in shard]


@given(jobs=job_lists(), count=st.integers(1, 12), seed=st.randoms(use_true_random=False))
def test_order_has_no_part_in_it(jobs: list[CompileJob], count: int, seed: random.Random) -> None:
    mixed = seed.sample(jobs, len(jobs))
    assert [{j.key for j in s} for s in split(jobs, count)] == [
        {j.key for j in s} for s in split(mixed, count)
    ]


@given(jobs=job_lists(), count=st.integers(1, 12))
def test_no_shard_is_much_heavier_than_needs_be(jobs: list[CompileJob], count: int) -> None:
    loads = [sum(map(weight, shard)) for shard in split(jobs, count)]
    total, heaviest = sum(map(weight, jobs)), max(map(weight, jobs), default=0.0)
    # what any division needs at least, and Graham's bound for any list order: total/count + (1 - 1/count) of the heaviest job
    assert max(loads) <= total / count + (1 - 1 / count) * heaviest + 1e-6


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_projects_shards_weigh_about_the_same(count: int) -> None:
    loads = [sum(map(weight, shard)) for shard in split(plan().jobs, count)]
    assert max(loads) <= 1.05 * min(loads)


def test_shards_are_numbered_from_one() -> None:
    assert parse_shard("2/5") == Shard(number=2, count=5)
    assert str(Shard(number=2, count=5)) == "2/5"


@pytest.mark.parametrize(
    "text", ["", "2", "0/5", "6/5", "1/0", "-1/5", "1/5/2", "a/b", "1 /5", "1/257", "\u0662/\u0665"]
)
def test_an_invalid_shard_is_refused(text: str) -> None:
    with pytest.raises(ShardError, match="is not a valid shard"):
        parse_shard(text)
