"""Every job in exactly one part, the same one every time, and no part much heavier than another."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import UnsupportedError
from aotforge.pipeline.parts import parse_part, split, weight
from aotforge.plan.model import CompileJob, Plan
from tests.support.families import PROJECT, plan_project


@cache
def plan() -> Plan:
    return plan_project(PROJECT, archs=["gfx908"], profile="core")


@st.composite
def job_lists(draw: st.DrawFn) -> list[CompileJob]:
    """Jobs that differ in key and cost only."""
    pattern = plan().jobs[0]
    sizes = draw(st.lists(st.integers(2, 4096), max_size=40))
    return [
        replace(pattern, key=f"{number:064x}", constants=(("BLOCK", size),))
        for number, size in enumerate(sizes)
    ]


@given(jobs=job_lists(), count=st.integers(1, 12), seed=st.randoms(use_true_random=False))
def test_every_job_is_in_exactly_one_part(jobs: list[CompileJob], count: int, seed: random.Random) -> None:
    parts = split(jobs, count)
    assert len(parts) == count
    assert sorted(job.key for part in parts for job in part) == sorted(job.key for job in jobs)
    for part in parts:
        assert list(part) == [job for job in jobs if job in part]
    # the order of the jobs has no effect
    mixed = split(seed.sample(jobs, len(jobs)), count)
    assert [{job.key for job in part} for part in parts] == [{job.key for job in part} for part in mixed]


@given(jobs=job_lists(), count=st.integers(1, 12))
def test_no_part_is_much_heavier_than_needs_be(jobs: list[CompileJob], count: int) -> None:
    loads = [sum(map(weight, part)) for part in split(jobs, count)]
    total, heaviest = sum(map(weight, jobs)), max(map(weight, jobs), default=0.0)
    # what any division needs at least, and Graham's bound for any list order
    assert max(loads) <= total / count + (1 - 1 / count) * heaviest + 1e-6


@pytest.mark.parametrize("count", [2, 5, 8])
def test_the_projects_parts_weigh_about_the_same(count: int) -> None:
    loads = [sum(map(weight, part)) for part in split(plan().jobs, count)]
    assert max(loads) <= 1.05 * min(loads)


def test_parts_are_numbered_from_one() -> None:
    assert parse_part("2/5") == (2, 5)


@pytest.mark.parametrize(
    "text", ["", "2", "0/5", "6/5", "1/0", "-1/5", "1/5/2", "a/b", "1 /5", "1/257", "\u0662/\u0665"]
)
def test_an_invalid_part_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="is not a valid part"):
        parse_part(text)
