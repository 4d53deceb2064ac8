"""The library's fuzzers (runtime/fuzz) by libFuzzer, under AddressSanitizer and
UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaigns.fuzzing.fuzz import Outcome
from tests.campaigns.fuzzing.programs import fuzzer
from tests.campaigns.fuzzing.target import ROOT

CORPUS = ROOT / "runtime" / "fuzz" / "corpus"

FUZZERS: Mapping[str, str] = {
    "containers, C++": "container",
    "dispatch data, C++": "dispatch",
    "attention params, C++": "attention",
}
"""Name to fuzzer."""

_LONGEST = 4096
_COVERAGE = re.compile(r"cov: (\d+)")
_RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")


def run_fuzzer(name: str, *, seconds: float, seed: int, kept: Path) -> Outcome:
    """Runs a fuzzer for some seconds of CPU time; inputs with new coverage are added to the folder `kept`."""
    program, committed = fuzzer(FUZZERS[name]), CORPUS / FUZZERS[name]
    outcome = Outcome(runs=0, lines=0, findings=[])
    scratch = kept.with_name("artifacts")
    for folder in (kept, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    while (left := seconds - outcome.seconds) > 0:
        before = _cpu()
        words = [
            str(program), f"-max_total_time={max(1, round(min(left, 60)))}", f"-seed={seed}",
            "-print_final_stats=1", f"-max_len={_LONGEST}",
            "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={scratch}/", str(kept), str(committed),
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        outcome.seconds += _cpu() - before
        seed += 1
        outcome.runs += sum(map(int, _RUNS.findall(done.stderr)))
        outcome.lines = max([outcome.lines, *map(int, _COVERAGE.findall(done.stderr))])
        outcome.findings += [(path.read_bytes(), done.stderr[-2000:]) for path in scratch.iterdir()]
        if done.returncode:
            assert outcome.findings, done.stderr[-2000:]
            break
    return outcome


def keep_from(name: str, folders: Sequence[Path]) -> int:
    """Adds those of the inputs in these folders that execute new edges to the corpus. The number of inputs in
    it."""
    committed = CORPUS / FUZZERS[name]
    words = [
        str(fuzzer(FUZZERS[name])),
        "-set_cover_merge=1",
        "-use_counters=0",  # edges alone, as the table has them
        f"-max_len={_LONGEST}",
        str(committed),
        *map(str, folders),
    ]
    subprocess.run(words, capture_output=True, check=True)
    return len(list(committed.iterdir()))


def _cpu() -> float:
    """Seconds that children have used."""
    used = os.times()
    return used.children_user + used.children_system
