"""Programs of the C++ targets under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.readers import sanitized_readers
from tests.support.runtime import build_objects

FUZZERS = ("container", "dispatch", "attention")


def readers() -> Path:
    """The program `readers` of the present sources."""
    return sanitized_readers().program("readers")


def fuzzer(name: str) -> Path:
    """A libFuzzer program of the present sources, compiled by clang. Skips without it."""
    compilers = [name for name in ("clang++-14", "clang++") if shutil.which(name)]
    if not compilers:
        pytest.skip("no clang++")
    built = build_objects(
        {"CC": compilers[0].replace("clang++", "clang"), "CXX": compilers[0]},
        targets=tuple(f"fuzz_{fuzzer}" for fuzzer in FUZZERS),
        AOTFORGE_BUILD_TESTS="OFF",
        AOTFORGE_BUILD_FUZZERS="ON",
        AOTFORGE_SANITIZE="address,undefined",
        AOTFORGE_API_LEVEL="0.14.2b",
        CMAKE_BUILD_TYPE="Fuzzing",
        CMAKE_C_FLAGS_FUZZING="-O1",
        CMAKE_CXX_FLAGS_FUZZING="-O1",
    )
    return built.folder / "fuzz" / f"fuzz_{name}"
