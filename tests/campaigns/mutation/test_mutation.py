"""The share of mutants that each module's tests notice is at least the recorded one. Hours: among the slow tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaigns.mutation import __main__ as main_module
from tests.campaigns.mutation import campaign, run_cpp, run_isa, run_python
from tests.campaigns.mutation.campaign import (
    AIMS,
    ROOT,
    SAMPLES,
    SEED,
    Result,
    equivalents,
    modules,
    recorded,
    sample,
    worse,
)
from tests.campaigns.mutation.schemata import Schemata, mutate
from tests.campaigns.mutation.syntax import changes

RUNS = {"cpp": run_cpp.run, "python": run_python.run, "isa": run_isa.run}


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("language", RUNS)
def test_no_rate_is_below_the_recorded_one(language: str) -> None:
    assert worse(RUNS[language]([], most=SAMPLES[language], seed=SEED)) == {}


def test_recorded_rates_meet_the_aims() -> None:
    rates = {name: result.rate for name, result in recorded().items()}
    for language in ("cpp", "python"):
        names = [module.name for module in modules(language)]
        below = {name: rates[name] for name in names if name in rates and rates[name] < AIMS[language]}
        assert names and below == {}
    assert rates["isa"] >= AIMS["isa"]


def test_a_lower_rate_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    result = replace(next(iter(recorded().values())), run=10, killed=9, equivalent=0, survivors=["one"])
    monkeypatch.setattr(campaign, "recorded", lambda: {result.module: result})
    assert worse([result]) == {}
    assert worse([replace(result, killed=8)]) == {result.module: (0.8, 0.9)}


def test_modules_that_have_not_changed_since_their_run_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All are as recorded but the first of each language, whose file was another one."""
    names = [*(module.name for language in ("cpp", "python") for module in modules(language)), "isa"]
    row = Result(module="", mutants=1, run=1, killed=1, equivalent=0, survivors=[])
    rows = {name: replace(row, module=name, sources=campaign.sources_of(name)) for name in names}
    old = {modules("cpp")[0].name, modules("python")[0].name}
    rows |= {name: replace(rows[name], sources="other") for name in old}
    run: list[str] = []

    def fake(names: Sequence[str], *, most: int, seed: int) -> Iterator[Result]:
        run.extend(names)
        return (rows[name] for name in names)

    monkeypatch.setattr(main_module, "_RUNS", dict.fromkeys(RUNS, fake))
    monkeypatch.setattr(main_module, "recorded", lambda: rows)
    assert main_module.main(["--changed"]) == 0
    assert set(run) == old and len({campaign.sources_of(name) for name in names}) == len(names)
    assert "| 100% |" in capsys.readouterr().out
    run.clear()
    assert main_module.main(["--changed", "--list"]) == 0
    assert set(capsys.readouterr().out.split()) == old and not run


def test_results_of_runs_elsewhere_are_recorded_unless_of_other_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = modules("python")[0].name
    row = Result(module=name, mutants=9, run=8, killed=8, equivalent=0, survivors=[], sources="other")
    written: list[Result] = []
    monkeypatch.setattr(main_module, "write", written.extend)
    campaign.save_result(tmp_path, row)
    assert main_module.main(["--import", str(tmp_path), "--write"]) == 1
    assert written == [] and f"not of these sources: {name}" in capsys.readouterr().err
    now = replace(row, sources=campaign.sources_of(name))
    campaign.save_result(tmp_path, now)
    assert main_module.main(["--import", str(tmp_path), "--write"]) == 0
    assert written == [now]


def test_a_sample_depends_on_names_alone() -> None:
    names = [f"mutant {number}" for number in range(100)]
    chosen = sample(names, 10, str)
    assert len(chosen) == 10 and chosen == sorted(chosen, key=names.index)
    assert set(chosen) <= set(sample(names[50:] + names[:50], 11, str))
    assert set(sample([name for name in names if name != chosen[3]], 9, str)) == set(chosen) - {chosen[3]}
    assert sample(names, 10, str, seed=13) != chosen


def test_every_module_has_tests_and_mutants() -> None:
    found = Schemata()
    names = set()
    for module in modules("cpp"):
        before = len(found.mutants)
        mutate(module.name, (ROOT / "runtime" / "src" / module.name).read_text(), found)
        assert len(found.mutants) > before + 10, module.name
    names |= {mutant.name for mutant in found.mutants}
    assert len(names) == len(found.mutants)
    names |= {mutant.name for mutant in run_isa.mutants()}
    for module in modules("python"):
        made = changes((ROOT / module.name).read_text())
        assert len(made) > 10, module.name
        names |= {f"{module.name}: {change.name}" for change in made}
        for change in made[::7]:
            ast.parse(change.text)
    for module in (*modules("cpp"), *modules("python")):
        assert module.tests and all((ROOT / test.partition("::")[0]).is_file() for test in module.tests), (
            module.name
        )
    assert set(equivalents()) <= names  # a reason for what is not there any more is stale


def test_a_mutant_changes_one_place() -> None:
    source = "def f(a, b):\n    if a < b and not b:\n        raise ValueError\n    return a + 1\n"
    found = {change.name for change in changes(source)}
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
    } <= found
    texts = {change.text for change in changes(source)}
    assert source.replace("a < b", "(a <= b)") in texts
    assert len(texts) == len(changes(source))
