"""Mutants of Python modules, each run with the module's own tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaigns.mutation.campaign import Module, Result, copy_tree, measured, modules, tests_fail
from tests.campaigns.mutation.syntax import Change, changes


def run(names: Sequence[str], *, most: int, seed: int) -> Iterator[Result]:
    """Results of these modules; of all without names."""
    wanted = [module for module in modules("python") if not names or module.name in names]
    if not wanted:
        return
    tree = copy_tree("python")
    for module in wanted:
        assert not tests_fail(tree, module.tests, {}, timeout=1800), (
            f"{module.name}: tests fail without a mutant"
        )
        yield _module(tree, module, most, seed)


def _module(tree: Path, module: Module, most: int, seed: int) -> Result:
    """The file is as it was afterwards."""
    file = tree / module.name
    source = file.read_text()

    def survives(change: Change) -> bool:
        file.write_text(change.text)
        return not tests_fail(tree, module.tests, {})

    try:
        return measured(
            module.name, changes(source), lambda change: f"{module.name}: {change.name}", survives,
            most=most, seed=seed,
        )  # fmt: skip
    finally:
        file.write_text(source)
