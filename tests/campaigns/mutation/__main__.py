"""`python -m tests.campaigns.mutation [MODULE...]`: measure modules, compare with the record or write it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.campaigns.mutation.campaign import (
    SAMPLES,
    modules,
    recorded,
    run_cpp,
    run_python,
    sources_of,
    worse,
    write,
)
from tests.campaigns.mutation.isa import run_isa

RUNS = {"cpp": run_cpp, "python": run_python, "isa": run_isa}


def main(arguments: Sequence[str]) -> int:
    """1 when a module's rate is below the recorded one."""
    known = {"cpp": list(modules("cpp")), "python": list(modules("python")), "isa": ["isa"]}
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.add_argument("module", nargs="*", help="modules of modules.toml, or isa; default: all")
    parser.add_argument("--changed", action="store_true", help="those that changed since their recorded run")
    parser.add_argument("--write", action="store_true", help="record the results in results.json")
    options = parser.parse_args(arguments)
    before = recorded()
    lower: dict[str, tuple[float, float]] = {}
    for language, names in known.items():
        wanted = [name for name in names if not options.module or name in options.module]
        if options.changed:
            wanted = [n for n in wanted if n not in before or before[n].sources != sources_of(n)]
        for result in RUNS[language](wanted, SAMPLES[language]) if wanted else ():
            print(f"{result.module}: {result.killed} of {result.run}: {result.rate:.0%}", flush=True)  # noqa: T201 - progress
            lower |= worse([result])
            if options.write:
                write([result])
    for name, (now, then) in lower.items():
        print(f"{name}: {now:.0%}, recorded: {then:.0%}", file=sys.stderr)  # noqa: T201 - a command's result
    return bool(lower) and not options.write


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
