"""The library's fuzzers (runtime/fuzz) by libFuzzer, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.campaigns.fuzzing.fuzz import Outcome
from tests.campaigns.fuzzing.target import ROOT
from tests.support.runtime import CACHE, Objects, build_objects

CORPUS = ROOT / "runtime" / "fuzz" / "corpus"
KEPT = CACHE / "fuzzing"
"""Inputs of all campaigns on this machine; those that add coverage are committed."""

FUZZERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "containers, C++": ("container", ("runtime/src/container", "runtime/src/zstd_frame", "runtime/src/sha256")),
    "dispatch data, C++": ("dispatch", ("runtime/src/dispatch", "runtime/src/sha256")),
    "attention params, C++": (
        "attention",
        (
            *("runtime/src/api_", "runtime/src/attention", "runtime/src/forward", "runtime/src/backward"),
            *("runtime/src/varlen", "runtime/include/aotriton/flash"),
        ),
    ),
}  # fmt: skip
"""Name in the table of docs/fuzzing.md to fuzzer and tested sources."""

_LONGEST = 4096
_COVERAGE = re.compile(r"cov: (\d+)")
_RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")


def build_fuzzers() -> Objects:
    """The fuzzers of the present sources, compiled by clang. Skips without it."""
    compilers = [name for name in ("clang++-14", "clang++") if shutil.which(name)]
    if not compilers:
        pytest.skip("no clang++")
    return build_objects(
        {"CC": compilers[0].replace("clang++", "clang"), "CXX": compilers[0]},
        targets=tuple(f"fuzz_{fuzzer}" for fuzzer, _ in FUZZERS.values()),
        AOTFORGE_BUILD_TESTS="OFF",
        AOTFORGE_BUILD_FUZZERS="ON",
        AOTFORGE_SANITIZE="address,undefined",
        AOTFORGE_API_LEVEL="0.14.2b",
        CMAKE_BUILD_TYPE="Fuzzing",
        CMAKE_C_FLAGS_FUZZING="-O1",
        CMAKE_CXX_FLAGS_FUZZING="-O1",
    )


def run_fuzzer(name: str, *, seconds: float, seed: int, keep: bool) -> Outcome:
    """Runs a fuzzer for some seconds of CPU time; with `keep`, inputs with new coverage are added to the corpus."""
    fuzzer, _ = FUZZERS[name]
    program = build_fuzzers().folder / "fuzz" / f"fuzz_{fuzzer}"
    kept, committed = KEPT / fuzzer, CORPUS / fuzzer
    outcome = Outcome(runs=0, corpus=0, lines=0, findings=[])
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as scratch:
        for folder in (kept, committed):
            folder.mkdir(parents=True, exist_ok=True)
        while (left := seconds - outcome.seconds) > 0:
            before, began = _cpu(), time.monotonic()
            words = [
                    str(program), f"-max_total_time={max(1, round(min(left, 60)))}", f"-seed={seed}", "-print_final_stats=1", f"-max_len={_LONGEST}",
                    "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={scratch}/", str(kept), str(committed),
            ]  # fmt: skip
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
            outcome.seconds += _cpu() - before
            seed += 1
            outcome.runs += sum(map(int, _RUNS.findall(done.stderr)))
            outcome.lines = max([outcome.lines, *map(int, _COVERAGE.findall(done.stderr))])
            outcome.findings += [(path.read_bytes(), done.stderr[-2000:]) for path in Path(scratch).iterdir()]
            if done.returncode:
                break
            assert time.monotonic() > began
        if keep:
            merge = [str(program), "-merge=1", f"-max_len={_LONGEST}", str(committed), str(kept)]
            subprocess.run(merge, capture_output=True, check=True)
    outcome.corpus = len(list(committed.iterdir()))
    return outcome


def _cpu() -> float:
    """Seconds that children have used."""
    used = os.times()
    return used.children_user + used.children_system
