"""Kept inputs and some fresh mutations of each target; the campaigns are among the slow tests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.campaigns.fuzzing.fuzz import Run, Target, fuzz, stored
from tests.campaigns.fuzzing.libfuzzer import FUZZERS, run_fuzzer
from tests.campaigns.fuzzing.targets import TARGETS
from tests.support.fuzzing import mutated

MUTATIONS = 60
NAMED = [
    pytest.param(name, marks=[pytest.mark.compiler] if target.compiled else [])
    for name, target in TARGETS.items()
]


@pytest.mark.parametrize("name", NAMED)
def test_kept_inputs_and_mutations_of_seeds(name: str) -> None:
    dice = random.Random(name)
    with TARGETS[name].open() as (seeds, run):
        fresh = (mutated(dice.choice(seeds), dice) for _ in range(MUTATIONS))
        for data in (*seeds, *stored(name), b"", *fresh):
            run(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_campaign(name: str, tmp_path: Path) -> None:
    found = fuzz(name, TARGETS[name], seconds=120, seed=random.randrange(2**32), kept=tmp_path / "corpus")
    assert found.findings == []


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("name", FUZZERS)
def test_campaign_of_the_library(name: str, tmp_path: Path) -> None:
    seed = random.randrange(1, 2**31)
    assert run_fuzzer(name, seconds=120, seed=seed, kept=tmp_path / "corpus").findings == []


def test_an_exception_is_a_finding(tmp_path: Path) -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Sequence[bytes], Run]]:
        def run(data: bytes) -> None:
            if b"\xff" in data:
                raise KeyError("planted")

        yield [b"seed"], run

    seeds = count(1)
    findings: list[tuple[bytes, str]] = []
    target = Target(open=opened, modules=())
    while not findings:  # however slow this machine is
        findings = fuzz("planted", target, seconds=0.2, seed=next(seeds), kept=tmp_path / "corpus").findings
    assert all(b"\xff" in data and "planted" in error for data, error in findings)
