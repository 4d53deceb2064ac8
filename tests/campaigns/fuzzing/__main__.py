"""`python -m tests.campaigns.fuzzing --minutes N [TARGET...]`: fuzz the targets; record the results with --write."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.fuzzing.fuzz import Outcome, folder_of, fuzz
from tests.campaigns.fuzzing.libfuzzer import FUZZERS, run_fuzzer
from tests.campaigns.fuzzing.results import NAMES, digest_of, record
from tests.campaigns.fuzzing.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    """1 when an input raised what its target does not allow; the inputs are left in the folder of --findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzzing", description=__doc__)
    parser.add_argument(
        "target", nargs="*", choices=[*NAMES, []], help=f"of: {'; '.join(NAMES)}. Default: all"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of CPU time, per target")
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument(
        "--write", action="store_true", help="keep new inputs and add the result to docs/fuzzing.md"
    )
    options = parser.parse_args(arguments)
    count = 0
    for name in options.target or NAMES:
        sources = digest_of(name)
        found = _run(
            name,
            seconds=options.minutes * 60,
            seed=options.seed or random.randrange(1, 2**31),
            keep=options.write,
        )
        row = {
            "minutes": round(found.seconds / 60, 2),
            "runs": found.runs,
            "corpus": found.corpus,
            "lines": found.lines,
            "findings": len(found.findings),
            "sources": sources,
        }
        print(name, json.dumps(row), flush=True)  # noqa: T201 - a command's result
        for number, (data, error) in enumerate(found.findings):
            options.findings.mkdir(parents=True, exist_ok=True)
            (options.findings / f"{folder_of(name).name}-{number}").write_bytes(data)
            print(f"  {error}", file=sys.stderr)  # noqa: T201
        if options.write and digest_of(name) == sources:  # else they were edited meanwhile
            record(name, row)
        count += len(found.findings)
    return bool(count)


def _run(name: str, *, seconds: float, seed: int, keep: bool) -> Outcome:
    if name in FUZZERS:
        return run_fuzzer(name, seconds=seconds, seed=seed, keep=keep)
    return fuzz(name, TARGETS[name], seconds=seconds, seed=seed, keep=keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
