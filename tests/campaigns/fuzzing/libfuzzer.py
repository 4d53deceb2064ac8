"""The library's fuzzers (runtime/fuzz) by libFuzzer, under AddressSanitizer and
UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.campaigns.fuzzing.fuzz import Outcome
from tests.support.runtime import ROOT, build_objects

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


def keep(name: str, folder: Path) -> None:
    """Adds inputs that execute new edges to the corpus."""
    program, committed = fuzzer(FUZZERS[name]), CORPUS / FUZZERS[name]
    words = [str(program), "-set_cover_merge=1", "-use_counters=0", f"-max_len={_LONGEST}"]
    subprocess.run([*words, str(committed), str(folder)], capture_output=True, check=True)


def fuzzer(name: str) -> Path:
    """A libFuzzer program of the present sources, compiled by clang. Skips without it."""
    compilers = [name for name in ("clang++-14", "clang++") if shutil.which(name)]
    if not compilers:
        pytest.skip("no clang++")
    built = build_objects(
        {"CC": compilers[0].replace("clang++", "clang"), "CXX": compilers[0]},
        targets=tuple(f"fuzz_{fuzzer}" for fuzzer in FUZZERS.values()),
        AOTFORGE_BUILD_TESTS="OFF",
        AOTFORGE_BUILD_FUZZERS="ON",
        AOTFORGE_SANITIZE="address,undefined",
        AOTFORGE_API_LEVEL="0.14.2b",
        CMAKE_BUILD_TYPE="Fuzzing",
        CMAKE_C_FLAGS_FUZZING="-O1",
        CMAKE_CXX_FLAGS_FUZZING="-O1",
    )
    return built.folder / "fuzz" / f"fuzz_{name}"


def _cpu() -> float:
    """Seconds that children have used."""
    used = os.times()
    return used.children_user + used.children_system
