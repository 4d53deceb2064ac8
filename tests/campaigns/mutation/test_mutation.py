"""The share of mutants that each module's tests notice is at least the recorded one. Hours: among the slow tests."""

from __future__ import annotations

import ast

import pytest

from tests.campaigns.mutation import run_cpp, run_python
from tests.campaigns.mutation.campaign import ROOT, Result, equivalents, modules, sample
from tests.campaigns.mutation.schemata import Schemata, mutate
from tests.campaigns.mutation.syntax import changes

CPP_SAMPLE, PYTHON_SAMPLE = 10, 12
"""Mutants of a module, chosen by the fixed seed: those of the recorded rates."""


def assert_not_worse(language: str, results: list[Result]) -> None:
    recorded = {module.name: module.recorded for module in modules(language)}
    assert set(recorded) == {one.module for one in results}
    worse = {one.module: (one.rate, *one.survivors) for one in results if one.rate < recorded[one.module]}
    assert worse == {}


@pytest.mark.slow
@pytest.mark.compiler
def test_mutants_of_the_library() -> None:
    assert_not_worse("cpp", run_cpp.main(CPP_SAMPLE, []))


@pytest.mark.slow
@pytest.mark.compiler
def test_mutants_of_python_modules() -> None:
    assert_not_worse("python", run_python.main(PYTHON_SAMPLE, []))


def test_every_module_has_tests_and_mutants() -> None:
    found = Schemata()
    names = set()
    for module in modules("cpp"):
        before = len(found.mutants)
        mutate(module.name, (ROOT / "runtime" / "src" / module.name).read_text(), found)
        assert len(found.mutants) > before + 10, module.name
    names |= {mutant.name for mutant in found.mutants}
    assert len(names) == len(found.mutants)
    for module in modules("python"):
        made = changes((ROOT / module.name).read_text())
        assert len(made) > 10, module.name
        names |= {f"{module.name}: {change.name}" for change in made}
        for change in sample(made, 20):
            ast.parse(change.text)
    for module in (*modules("cpp"), *modules("python")):
        assert module.tests and all((ROOT / test).is_file() for test in module.tests), module.name
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
