"""`python -m tests.campaigns.fuzzing --minutes N --jobs J [TARGET...]`: fuzz the targets; keep new inputs with --write."""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaigns.fuzzing import programs
from tests.campaigns.fuzzing.fuzz import folder_of
from tests.campaigns.fuzzing.shares import (
    NAMES,
    Share,
    changed,
    keep,
    read_shares,
    run_shares,
    total,
)


def main(arguments: Sequence[str]) -> int:
    """1 when an input raised what its target does not allow; the inputs are left in the folder of --findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzzing", description=__doc__)
    parser.add_argument(
        "target", nargs="*", choices=[*NAMES, []], help=f"of: {'; '.join(NAMES)}. Default: all"
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="of CPU time, per target: the sum of its processes"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="processes at a time; with more than targets, several of each target",
    )
    parser.add_argument(
        "--elapsed",
        type=float,
        default=math.inf,
        metavar="MINUTES",
        help="elapsed time that a process takes at most",
    )
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument(
        "--write", action="store_true", help="add inputs that execute something new to the corpus"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="leave the processes' results in this new folder, for --import",
    )
    parser.add_argument(
        "--import",
        type=Path,
        nargs="+",
        dest="imported",
        metavar="FOLDER",
        help="take results of runs elsewhere: fuzz nothing",
    )
    parser.add_argument(
        "--export-programs",
        type=Path,
        metavar="FOLDER",
        help=f"build the C++ programs for a machine without compilers, where {programs.VARIABLE} names them",
    )
    options = parser.parse_args(arguments)
    if options.export_programs:
        programs.export(options.export_programs)
        return 0
    names = options.target or NAMES
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as scratch:
        folders = options.imported or [options.results or Path(scratch)]
        if not options.imported:
            seed = options.seed or random.randrange(1, 2**31)
            run_shares(
                names,
                folders[0],
                minutes=options.minutes,
                jobs=options.jobs,
                elapsed=options.elapsed,
                seed=seed,
            )
        shares = {name: some for name, some in read_shares(folders).items() if name in names}
        if old := changed(shares):
            print(f"not of these sources: {', '.join(old)}", file=sys.stderr)  # noqa: T201 - a command's result
            return 1
        return bool(_report(shares, options.findings, write=options.write))


def _report(shares: Mapping[str, Sequence[Share]], findings: Path, *, write: bool) -> int:
    """Prints the row of each target, leaves findings in their folder, and adds inputs to the corpus with `write`. The number of findings."""
    count = 0
    for name, some in shares.items():
        row = total(some) | (keep(name, some) if write else {})
        print(name, json.dumps(row), flush=True)  # noqa: T201
        for data, error in [finding for share in some for finding in share.findings()]:
            findings.mkdir(parents=True, exist_ok=True)
            (findings / f"{folder_of(name).name}-{count}").write_bytes(data)
            print(f"  {error}", file=sys.stderr)  # noqa: T201
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
