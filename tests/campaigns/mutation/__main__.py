"""`python -m tests.campaigns.mutation [MODULE...]`: measure modules, compare with the record or write it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.campaigns.mutation import run_cpp, run_isa, run_python
from tests.campaigns.mutation.campaign import (
    SAMPLES,
    SEED,
    modules,
    recorded,
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
    parser.add_argument("--write", action="store_true", help="record the results in docs/mutation.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.module) - {name for names in known.values() for name in names}:
        parser.error(f"unknown module: {min(unknown)}")
    before = {name: sources_of(name) for names in known.values() for name in names}
    if options.changed:
        done = {name for name, row in recorded().items() if row.sources == before[name]}
        known = {language: [name for name in names if name not in done] for language, names in known.items()}
    results = []
    for language, run in _RUNS.items():
        wanted = [name for name in known[language] if not options.module or name in options.module]
        if not wanted:
            continue
        for measured in run(wanted, most=options.sample or SAMPLES[language], seed=options.seed):
            result = replace(measured, sources=before[measured.module])
            results.append(result)
            print(table([result]).splitlines()[-1], flush=True)  # noqa: T201 - progress of hours
            if options.write:
                write([result])
    lower = {} if options.write else worse(results)
    for name, (now, before) in lower.items():
        print(f"{name}: {now:.0%}, recorded: {before:.0%}", file=sys.stderr)  # noqa: T201 - a command's result
    return bool(lower)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
