"""Mutants of the C++ library: one build that holds all of them, one run of tests per mutant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.campaigns.mutation.campaign import (
    Killer,
    Module,
    Result,
    copy_tree,
    measured,
    modules,
    with_tests,
)
from tests.campaigns.mutation.schemata import HEADER, Mutant, Schemata, mutate


def mutated_tree() -> tuple[Path, list[Mutant]]:
    """A copy of the tree whose library holds all mutants."""
    tree, found = copy_tree("cpp"), Schemata()
    for module in modules("cpp"):
        file = tree / "runtime" / "src" / module.name
        file.write_text(mutate(module.name, file.read_text(), found))
    (tree / "runtime" / "src" / "mutants.h").write_text(HEADER)
    settings = tree / "runtime" / "CMakeLists.txt"
    settings.write_text(settings.read_text().replace("-Werror", "-w"))
    return tree, found.mutants


def run(names: Sequence[str], *, most: int, seed: int) -> Iterator[Result]:
    """Results of these files; of all without names."""
    wanted = [module for module in modules("cpp") if not names or module.name in names]
    if not wanted:
        return
    tree, mutants = mutated_tree()
    for module in wanted:
        yield _module(tree, module, [mutant for mutant in mutants if mutant.file == module.name], most, seed)


def _module(tree: Path, module: Module, mutants: Sequence[Mutant], most: int, seed: int) -> Result:
    def run_mutants(killer: Killer) -> Result:
        return measured(
            module.name, mutants, lambda mutant: mutant.name,
            lambda mutant: killer({"AOTFORGE_MUTANT": str(mutant.number)}), most=most, seed=seed,
        )  # fmt: skip

    return with_tests(tree, module, run_mutants)
