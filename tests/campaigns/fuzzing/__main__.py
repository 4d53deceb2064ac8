"""`python -m tests.campaigns.fuzzing --minutes N [TARGET...]`: fuzz the targets; record the results with --write."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.fuzzing.fuzz import fuzz
from tests.campaigns.fuzzing.results import record
from tests.campaigns.fuzzing.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    """1 when an input raised what its target does not allow; the inputs are left in the folder of --findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzzing", description=__doc__)
    parser.add_argument(
        "target", nargs="*", choices=[*TARGETS, []], help=f"of: {', '.join(TARGETS)}; default: all"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument(
        "--write", action="store_true", help="keep new inputs and record the result in docs/fuzzing.md"
    )
    options = parser.parse_args(arguments)
    count = 0
    for name in options.target or TARGETS:
        found = fuzz(name, TARGETS[name], seconds=options.minutes * 60, seed=options.seed, keep=options.write)
        row = {
            "minutes": options.minutes,
            "runs": found.runs,
            "corpus": found.corpus,
            "lines": found.lines,
            "findings": len(found.findings),
        }
        print(name, json.dumps(row), flush=True)  # noqa: T201 - a command's result
        for number, (data, error) in enumerate(found.findings):
            options.findings.mkdir(parents=True, exist_ok=True)
            (options.findings / f"{name.replace(' ', '-')}-{number}").write_bytes(data)
            print(f"  {error}", file=sys.stderr)  # noqa: T201
        if options.write:
            record(name, row)
        count += len(found.findings)
    return bool(count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
