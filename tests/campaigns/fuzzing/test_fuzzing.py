"""Kept inputs and some fresh mutations of each target; the campaigns are among the slow tests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import pytest

from tests.campaigns.fuzzing.fuzz import fuzz, replay, stored
from tests.campaigns.fuzzing.results import PAGE, page
from tests.campaigns.fuzzing.targets import TARGETS, Run, Target
from tests.support.fuzzing import mutated

MUTATIONS = 60


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_and_mutations_of_seeds(name: str) -> None:
    dice = random.Random(name)
    with TARGETS[name].open() as (seeds, run):
        replay(run, [*seeds, *stored(name), b""])
        replay(run, [mutated(dice.choice(seeds), dice) for _ in range(MUTATIONS)])


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_campaign(name: str) -> None:
    assert fuzz(name, TARGETS[name], seconds=120, seed=random.randrange(2**32), keep=False).findings == []


def test_an_exception_is_a_finding() -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Sequence[bytes], Run]]:
        def run(data: bytes) -> None:
            if b"\xff" in data:
                raise KeyError("planted")

        yield [b"seed"], run

    seeds = count(1)
    findings: list[tuple[bytes, str]] = []
    while not findings:  # however slow this machine is
        findings = fuzz(
            "planted", Target(open=opened, modules=()), seconds=0.2, seed=next(seeds), keep=False
        ).findings
    assert all(b"\xff" in data and "planted" in error for data, error in findings)


def test_the_page_has_the_recorded_results() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run `python -m tests.campaigns.fuzzing --write`"
