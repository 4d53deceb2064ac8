"""Mutants of Python modules: `python -m tests.campaigns.mutation.run_python [SAMPLE [MODULE...]]`, with each module's own tests."""

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
from tests.campaigns.mutation.syntax import changes


def run(tree: Path, module: Module, most: int) -> Result:
    """Run a sample of one module's mutants; the file is as it was afterwards."""
    known, file = equivalents(), tree / module.name
    source = file.read_text()
    found = changes(source)
    chosen = sample(found, most)
    equivalent = [change for change in chosen if f"{module.name}: {change.name}" in known]
    survivors = []
    try:
        for change in chosen:
            if change in equivalent:
                continue
            file.write_text(change.text)
            if not tests_fail(tree, module.tests, {}):
                survivors.append(f"{module.name}: {change.name} (line {change.line})")
                print(f"survives: {survivors[-1]}", flush=True)  # noqa: T201 - progress of hours
    finally:
        file.write_text(source)
    killed = len(chosen) - len(equivalent) - len(survivors)
    return Result(
        module=module.name, mutants=len(found), run=len(chosen), killed=killed, equivalent=len(equivalent), survivors=survivors
    )  # fmt: skip


def main(most: int, names: Sequence[str]) -> list[Result]:
    """Results per module, printed as they are found."""
    results, tree = [], copy_tree("python")
    for module in modules("python"):
        if names and module.name not in names:
            continue
        assert not tests_fail(tree, module.tests, {}, timeout=1800), (
            f"the tests of {module.name} fail without a mutant"
        )
        results.append(run(tree, module, most))
        print(table(results[-1:]).splitlines()[-1], flush=True)  # noqa: T201 - progress of hours
    return results


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10**6, sys.argv[2:])
