"""The share of mutants that each module's tests notice is at least the recorded one. Hours: among the slow
tests."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from tests.campaigns.mutation import campaign
from tests.campaigns.mutation.campaign import ROOT, known_equivalent, modules, recorded, sample, worse
from tests.campaigns.mutation.schemata import mutate
from tests.campaigns.mutation.syntax import changes


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("language", campaign.RUNS)
def test_no_rate_is_below_the_recorded_one(language: str) -> None:
    assert worse(campaign.RUNS[language](modules(language), campaign.SAMPLES[language])) == {}


def test_recorded_rates_meet_the_aims() -> None:
    rates = {name: result.rate for name, result in recorded().items()}
    for language in ("cpp", "python"):
        names = [name for name in modules(language) if name in rates]
        assert names and [name for name in names if rates[name] < campaign.AIMS[language]] == []


def test_a_lower_rate_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    result = replace(next(iter(recorded().values())), run=10, killed=9, equivalent=0, survivors=["one"])
    monkeypatch.setattr(campaign, "recorded", lambda: {result.module: result})
    assert worse([result]) == {}
    assert worse([replace(result, killed=8)]) == {result.module: (0.8, 0.9)}


def test_a_sample_depends_on_names_alone() -> None:
    names = [f"mutant {number}" for number in range(100)]
    chosen = sample(names, 10)
    assert len(chosen) == 10 and chosen == sorted(chosen, key=names.index)
    assert set(chosen) <= set(sample(names[50:] + names[:50], 11))
    assert set(sample([name for name in names if name != chosen[3]], 9)) == set(chosen) - {chosen[3]}


def test_every_module_has_tests_and_mutants() -> None:
    found: list[str] = []
    for name in modules("cpp"):
        before = len(found)
        mutate(name, (ROOT / "runtime" / "src" / name).read_text(), found)
        assert len(found) > before + 10, name
    names = set(found)
    assert len(set(found)) == len(found)
    for name in modules("python"):
        made = changes((ROOT / name).read_text())
        assert len(made) > 10, name
        names |= {f"{name}: {change}" for change in made}
        for text in list(made.values())[::7]:
            ast.parse(text)
    for name, tests in (modules("cpp") | modules("python")).items():
        assert tests and all((ROOT / test.partition("::")[0]).is_file() for test in tests), name
    assert set(known_equivalent()) <= names  # a reason for what is not there any more is stale


def test_a_mutant_changes_one_place() -> None:
    source = "def f(a, b):\n    if a < b and not b:\n        raise ValueError\n    return a + 1\n"
    found = changes(source)
    assert {
        "a < b -> a <= b",
        "a < b -> a >= b",
        "not b -> b",
        "a < b and not b -> a < b or not b",
        "a < b and not b -> not b",
        "a < b and not b -> a < b",
        "raise ValueError -> pass",
        "1 -> 2",
        "a + 1 -> a - 1",
        "return a + 1 -> return None",
    } <= set(found)
    assert source.replace("a < b", "(a <= b)") in found.values()
    assert len(set(found.values())) == len(found)
