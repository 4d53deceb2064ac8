"""A campaign's shares: processes that fuzz one target each, side by side, and their results as folders that can be merged elsewhere."""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.fuzzing import fuzz, libfuzzer
from tests.campaigns.fuzzing.libfuzzer import FUZZERS
from tests.campaigns.fuzzing.target import sources_digest
from tests.campaigns.fuzzing.targets import TARGETS

NAMES = (*TARGETS, *FUZZERS)

_RESULT = "result.json"
_MEMORY = 4 << 30
"""Bytes of address space of a share in Python: a reader that believes a count of its input ends here."""
_LATE = 120
"""Seconds after which a share that is past its limits is ended."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one share: seconds of CPU time, and of elapsed time."""

    cpu: float
    elapsed: float = math.inf


def digest_of(name: str) -> str:
    """The digest of the sources that a target tests."""
    if name in FUZZERS:
        return sources_digest((*FUZZERS[name][1], f"runtime/fuzz/fuzz_{FUZZERS[name][0]}"))
    return sources_digest(TARGETS[name].modules, TARGETS[name].packages)


@dataclass(frozen=True, kw_only=True)
class Share:
    """A folder with the result of one process: the new inputs, those that failed, and its row."""

    folder: Path
    row: Mapping[str, Any]

    @property
    def target(self) -> str:
        return str(self.row["target"])

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    def findings(self) -> list[tuple[bytes, str]]:
        return [
            ((self.folder / f"finding-{number}").read_bytes(), error)
            for number, error in enumerate(self.row["errors"])
        ]


def run_shares(
    names: Sequence[str], folder: Path, *, minutes: float, jobs: int, elapsed: float, seed: int
) -> None:
    """Fuzzes the targets for some CPU minutes each by `jobs` processes at a time, several of a target when there are more of them than
    targets. No process takes more than `elapsed` minutes."""
    each = max(1, jobs // len(names))
    limits = Limits(cpu=minutes * 60 / each, elapsed=elapsed * 60)
    dice = random.Random(seed)

    def run(name: str, number: int, seed: int) -> None:
        place = folder / f"{fuzz.folder_of(name).name}-{number}"
        place.mkdir(parents=True)
        sources = digest_of(name)
        words = [
            sys.executable,
            "-m",
            __name__,
            name,
            str(place),
            str(limits.cpu),
            str(limits.elapsed),
            str(seed),
        ]
        try:
            code = subprocess.run(
                words, check=False, timeout=None if limits.elapsed == math.inf else limits.elapsed + _LATE
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        running = place / "running"
        if code and running.exists():  # an input that ended the process, or did not end
            outcome = fuzz.Outcome(runs=0, lines=0, findings=[(running.read_bytes(), f"ended with {code}")])
            _save(place, name, outcome, sources)
        assert (place / _RESULT).exists(), f"{name}: ended with {code} before its first input"

    with ThreadPoolExecutor(jobs) as pool:
        # shares of one target last, so that each has one share before any has two
        rounds = [(name, number, dice.randrange(1, 2**31)) for number in range(each) for name in names]
        list(pool.map(lambda one: run(*one), rounds))


def read_shares(folders: Iterable[Path]) -> dict[str, list[Share]]:
    """Target to its shares in the subfolders of these folders."""
    found: dict[str, list[Share]] = {}
    for path in sorted(path for folder in folders for path in folder.glob(f"*/{_RESULT}")):
        share = Share(folder=path.parent, row=json.loads(path.read_text()))
        found.setdefault(share.target, []).append(share)
    return found


def changed(shares: Mapping[str, Sequence[Share]]) -> list[str]:
    """Targets whose tested sources are not those of their shares."""
    return [
        name for name, some in shares.items() if {one.row["sources"] for one in some} != {digest_of(name)}
    ]


def total(shares: Sequence[Share]) -> dict[str, object]:
    """The row of one target: the sum of its shares."""
    rows = [share.row for share in shares]
    return {
        "minutes": round(sum(row["seconds"] for row in rows) / 60, 2),
        "runs": sum(row["runs"] for row in rows),
        "lines": max(row["lines"] for row in rows),
        "findings": sum(len(row["errors"]) for row in rows),
    }


def keep(name: str, shares: Sequence[Share]) -> dict[str, int]:
    """Adds inputs of the shares that execute something new to the target's corpus; what this changes in its row."""
    folders = [share.corpus for share in shares if share.corpus.is_dir()]
    if name in FUZZERS:
        return {"corpus": libfuzzer.keep_from(name, folders)}
    corpus, lines = fuzz.keep_from(name, TARGETS[name], folders)
    return {"corpus": corpus, "lines": lines}


def _fuzz(name: str, folder: Path, limits: Limits, seed: int) -> None:
    """One share, in this process."""
    corpus, sources = folder / "corpus", digest_of(name)
    if name in FUZZERS:
        outcome = libfuzzer.run_fuzzer(
            name, seconds=limits.cpu, seed=seed, kept=corpus, elapsed=limits.elapsed
        )
    else:
        cpu = round(limits.cpu) + _LATE
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        if not TARGETS[name].compiled:  # AddressSanitizer reserves terabytes
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        outcome = fuzz.fuzz(
            name, TARGETS[name], seconds=limits.cpu, seed=seed, kept=corpus, elapsed=limits.elapsed
        )
    _save(folder, name, outcome, sources)


def _save(folder: Path, name: str, outcome: fuzz.Outcome, sources: str) -> None:
    for number, (data, _) in enumerate(outcome.findings):
        (folder / f"finding-{number}").write_bytes(data)
    row = {
        "target": name,
        "seconds": round(outcome.seconds, 1),
        "runs": outcome.runs,
        "lines": outcome.lines,
        "errors": [error for _, error in outcome.findings],
        "sources": sources,
    }
    (folder / _RESULT).write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    _fuzz(
        sys.argv[1],
        Path(sys.argv[2]),
        Limits(cpu=float(sys.argv[3]), elapsed=float(sys.argv[4])),
        int(sys.argv[5]),
    )
