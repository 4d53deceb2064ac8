"""`python -m tests.campaigns.fuzzing --minutes N --jobs J [TARGET...]`: fuzz the targets; keep new inputs
with --write."""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns.fuzzing import fuzz, libfuzzer
from tests.campaigns.fuzzing.libfuzzer import FUZZERS
from tests.campaigns.fuzzing.targets import TARGETS

NAMES = (*TARGETS, *FUZZERS)
_MEMORY = 4 << 30
"""Bytes of address space of a target in Python: a reader that believes a count of its input ends here."""
_LATE = 120
"""Seconds of processor time after which a process that is past its limit is ended."""


def main(arguments: Sequence[str]) -> int:
    """1 when an input raised what its target does not allow; the inputs are left in the folder of
    --findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzzing", description=__doc__)
    parser.add_argument("target", nargs="*", choices=[*NAMES, []], help=f"{'; '.join(NAMES)}; default: all")
    parser.add_argument("--minutes", type=float, default=2.0, help="of CPU time, per target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--write", action="store_true", help="add inputs that execute something new")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as scratch:

        def run(name: str) -> int:
            place = Path(scratch) / fuzz.folder_of(name).name
            found = fuzz_apart(name, place, options.minutes * 60)
            for number, data in enumerate(found):
                options.findings.mkdir(parents=True, exist_ok=True)
                (options.findings / f"{place.name}-{number}").write_bytes(data)
            if options.write and name in FUZZERS:
                libfuzzer.keep(name, place / "corpus")
            elif options.write:
                shutil.copytree(place / "corpus", fuzz.folder_of(name), dirs_exist_ok=True)
            return len(found)

        with ThreadPoolExecutor(options.jobs) as pool:
            return bool(sum(pool.map(run, options.target or NAMES)))


def fuzz_apart(name: str, place: Path, seconds: float) -> list[bytes]:
    """Fuzzes a target in a process of its own, with files in `place`. The inputs that failed."""
    place.mkdir(parents=True)
    code = "from tests.campaigns.fuzzing.__main__ import child; child()"
    words = [sys.executable, "-c", code, name, str(place), str(seconds)]
    status = subprocess.run(words, check=False).returncode
    running = place / "running"
    if status and running.exists():  # an input that ended the process, or did not end
        return [running.read_bytes()]
    assert not status, f"{name}: ended with {status} before its first input"
    return [path.read_bytes() for path in sorted(place.glob("finding-*"))]


def child() -> None:
    """One target, in this process: prints its row."""
    name, place, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    seed, kept = random.randrange(1, 2**31), place / "corpus"
    if name in FUZZERS:
        outcome = libfuzzer.run_fuzzer(name, seconds=seconds, seed=seed, kept=kept)
    else:
        cpu = round(seconds) + _LATE
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        if not TARGETS[name].compiled:  # AddressSanitizer reserves terabytes
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        outcome = fuzz.fuzz(name, TARGETS[name], seconds=seconds, seed=seed, kept=kept)
    for number, (data, error) in enumerate(outcome.findings):
        (place / f"finding-{number}").write_bytes(data)
        print(f"  {error}", file=sys.stderr)  # noqa: T201 - a command's result
    row = {"minutes": round(outcome.seconds / 60, 2), "runs": outcome.runs, "lines": outcome.lines}
    print(name, json.dumps(row | {"findings": len(outcome.findings)}), flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
