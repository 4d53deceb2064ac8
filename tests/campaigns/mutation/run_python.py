"""Mutants of Python modules, each run with the module's own tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from compileall import compile_dir
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.campaigns.mutation.campaign import (
    Killer,
    Module,
    Result,
    copy_tree,
    measured,
    modules,
    with_tests,
)
from tests.campaigns.mutation.syntax import Change, changes


def run(names: Sequence[str], *, most: int, seed: int) -> Iterator[Result]:
    """Results of these modules; of all without names."""
    wanted = [module for module in modules("python") if not names or module.name in names]
    if not wanted:
        return
    tree = copy_tree("python")
    # by the text's digest: a mutant of the same length in the same second is compiled again
    compile_dir(tree, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    for module in wanted:
        yield _module(tree, module, most, seed)


def _module(tree: Path, module: Module, most: int, seed: int) -> Result:
    """The file is as it was afterwards."""
    file = tree / module.name
    source = file.read_text()

    def run_mutants(killer: Killer) -> Result:
        def noticed_by(change: Change) -> str:
            file.write_text(change.text)
            return killer({})

        try:
            return measured(
                module.name, changes(source), lambda change: f"{module.name}: {change.name}", noticed_by,
                most=most, seed=seed,
            )  # fmt: skip
        finally:
            file.write_text(source)

    return with_tests(tree, module, run_mutants)
