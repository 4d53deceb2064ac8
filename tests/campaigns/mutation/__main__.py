"""`python -m tests.campaigns.mutation [MODULE...]`: measure modules, compare with the record or write it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.campaigns.mutation import run_cpp, run_isa, run_python
from tests.campaigns.mutation.campaign import (
    SAMPLES,
    SEED,
    Result,
    modules,
    read_results,
    recorded,
    save_result,
    sources_of,
    table,
    worse,
    write,
)

_RUNS = {"cpp": run_cpp.run, "python": run_python.run, "isa": run_isa.run}


def main(arguments: Sequence[str]) -> int:
    """1 when a module's rate is below the recorded one."""
    known = {language: [module.name for module in modules(language)] for language in ("cpp", "python")}
    known["isa"] = ["isa"]
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.add_argument("module", nargs="*", help="modules of modules.toml, or isa; default: all")
    parser.add_argument("--sample", type=int, help="mutants per module; default: as recorded")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--changed",
        action="store_true",
        help="of these, the modules that have changed since their recorded run",
    )
    parser.add_argument("--list", action="store_true", help="print their names, and run nothing")
    parser.add_argument("--write", action="store_true", help="record the results in results.json")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="leave a file per module, for --import"
    )
    parser.add_argument(
        "--import",
        type=Path,
        dest="imported",
        metavar="FOLDER",
        help="take results of a run elsewhere: run nothing",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.module) - {name for names in known.values() for name in names}:
        parser.error(f"unknown module: {min(unknown)}")
    digests = {name: sources_of(name) for names in known.values() for name in names}
    left_out: set[str] = set()
    found: Iterable[Result]
    if options.module:
        left_out |= set(digests) - set(options.module)
    if options.changed:
        left_out |= {name for name, row in recorded().items() if row.sources == digests.get(name)}
    wanted = {language: [name for name in names if name not in left_out] for language, names in known.items()}
    if options.list:
        print("\n".join(name for names in wanted.values() for name in names))  # noqa: T201 - a command's result
        return 0
    if options.imported:
        found = [result for result in read_results(options.imported) if result.module not in left_out]
        if old := [one.module for one in found if one.sources != digests.get(one.module)]:
            print(f"not of these sources: {', '.join(old)}", file=sys.stderr)  # noqa: T201 - a command's result
            return 1
    else:
        sample: Mapping[str, int] = dict.fromkeys(_RUNS, options.sample) if options.sample else SAMPLES
        found = _run(wanted, digests, sample, options.seed)
    results = []
    for result in found:
        results.append(result)
        print(table([result]).splitlines()[-1], flush=True)  # noqa: T201 - progress of hours
        if options.results:
            save_result(options.results, result)
        if options.write:
            write([result])
    lower = {} if options.write else worse(results)
    for name, (now, before) in lower.items():
        print(f"{name}: {now:.0%}, recorded: {before:.0%}", file=sys.stderr)  # noqa: T201 - a command's result
    return bool(lower)


def _run(
    wanted: Mapping[str, Sequence[str]], digests: Mapping[str, str], sample: Mapping[str, int], seed: int
) -> Iterator[Result]:
    for language, run in _RUNS.items():
        if wanted[language]:
            for result in run(wanted[language], most=sample[language], seed=seed):
                yield replace(result, sources=digests[result.module])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
