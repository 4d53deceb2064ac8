"""Programs of the C++ targets under AddressSanitizer and UndefinedBehaviorSanitizer: built here, or earlier for machines without compilers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.readers import sanitized_readers
from tests.support.runtime import build_objects, source_digest

FUZZERS = ("container", "dispatch", "attention")
VARIABLE = "AOTFORGE_FUZZING_PROGRAMS"
"""A folder that `export` has written: its programs are used, and nothing is built."""

_SOURCES = "sources"
_WRAPPER = '#!/bin/sh\nhere=$(dirname "$0")/lib\nLD_LIBRARY_PATH=$here exec "$here/{name}" "$@"\n'
_OF_SYSTEM = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|resolv)\.so)")
_LIBRARY = re.compile(r"=> (/\S+)")


def fuzzer(name: str) -> Path:
    """A libFuzzer program of the present sources, compiled by clang. Skips without it."""
    return _exported(f"fuzz_{name}") or _built_fuzzer(name)


def readers() -> Path:
    """The program `readers` of the present sources."""
    return _exported("readers") or sanitized_readers().program("readers")


def export(folder: Path) -> None:
    """All of them with the libraries that they need, but the C library: they run where that is not older than here."""
    (folder / "lib").mkdir(parents=True)
    for program in (readers(), *map(fuzzer, FUZZERS)):
        needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in (program, *map(Path, _LIBRARY.findall(needed))):
            if not _OF_SYSTEM.match(path.name):
                shutil.copy(path, folder / "lib")
        wrapper = folder / program.name
        wrapper.write_text(_WRAPPER.format(name=program.name))
        wrapper.chmod(0o755)
    (folder / _SOURCES).write_text(source_digest())


def _exported(name: str) -> Path | None:
    if not (folder := os.environ.get(VARIABLE)):
        return None
    assert (Path(folder) / _SOURCES).read_text() == source_digest(), (
        f"{VARIABLE}: programs of other sources in {folder}"
    )
    return Path(folder, name).absolute()


def _built_fuzzer(name: str) -> Path:
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
