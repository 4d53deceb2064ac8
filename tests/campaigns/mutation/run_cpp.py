"""Mutants of the C++ library: `python -m tests.campaigns.mutation.run_cpp [SAMPLE [FILE...]]`. One build, one run of tests per mutant."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.mutation.campaign import (
    Module,
    Result,
    copy_tree,
    equivalents,
    modules,
    sample,
    table,
    tests_fail,
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


def run(tree: Path, mutants: Sequence[Mutant], module: Module, most: int) -> Result:
    """Run a sample of one file's mutants."""
    known = equivalents()
    own = [mutant for mutant in mutants if mutant.file == module.name]
    chosen = sample(own, most)
    equivalent = [mutant for mutant in chosen if mutant.name in known]
    survivors = []
    for mutant in chosen:
        if mutant.name not in known and not tests_fail(
            tree, module.tests, {"AOTFORGE_MUTANT": str(mutant.number)}
        ):
            survivors.append(f"{mutant.name} (line {mutant.line})")
            print(f"survives: {survivors[-1]}", flush=True)  # noqa: T201 - progress of hours
    killed = len(chosen) - len(equivalent) - len(survivors)
    return Result(
        module=module.name, mutants=len(own), run=len(chosen), killed=killed, equivalent=len(equivalent), survivors=survivors
    )  # fmt: skip


def main(most: int, names: Sequence[str]) -> list[Result]:
    """Results per file, printed as they are found."""
    results = []
    tree, mutants = mutated_tree()
    wanted = [module for module in modules("cpp") if not names or module.name in names]
    tests = sorted({test for module in wanted for test in module.tests})
    assert not tests_fail(tree, tests, {}, timeout=1800), "the tests fail without a mutant"
    for module in wanted:
        results.append(run(tree, mutants, module, most))
        print(table(results[-1:]).splitlines()[-1], flush=True)  # noqa: T201 - progress of hours
    return results


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10**6, sys.argv[2:])
