"""The readers of image packs: the C++ program `readers` and Python's strict reader, for the same bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aotforge.errors import PackError
from aotforge.pack.binary import Source
from aotforge.pack.container import read_images, read_index
from aotforge.pack.dispatch import decode_dispatch
from tests.support.runtime import Objects, build_objects

_MEMORY = 2 << 30
"""Bytes of address space, or of an allocation of a sanitized program: a reader that believes a count of the
file ends here."""


def sanitized_readers() -> Objects:
    """The program `readers` and the fuzzers' replay programs under AddressSanitizer and
    UndefinedBehaviorSanitizer."""
    return build_objects(
        targets=(
            "readers",
            "replay_fuzz_dispatch",
            "replay_fuzz_container",
            "replay_fuzz_attention",
        ),
        AOTFORGE_SANITIZE="address,undefined",
        CMAKE_BUILD_TYPE="Sanitized",
        CMAKE_C_FLAGS_SANITIZED="-O1",
        # compiled in half of the time; zstd's decoder in twice the time, as nothing is left out
        CMAKE_CXX_FLAGS_SANITIZED="-O0",
    )


class Readers:
    """The program `readers`: bytes of a dispatch file or container in, one line with the result out."""

    def __init__(self, program: Path, folder: Path, *, sanitized: bool = False) -> None:
        self._file = folder / "bytes"
        # AddressSanitizer reserves terabytes of address space
        limit = [] if sanitized else ["prlimit", f"--as={_MEMORY}"]
        options = {"ASAN_OPTIONS": f"max_allocation_size_mb={_MEMORY >> 20}"}
        self._process = subprocess.Popen(
            [*limit, program], env=os.environ | options,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __call__(self, kind: str, data: bytes) -> str:
        assert self._process.stdin and self._process.stdout
        self._file.write_bytes(data)
        self._process.stdin.write(f"{kind} {self._file}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip()
        assert answer, f"the reader ended with {self._process.wait(300)}"
        return answer

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(300) == 0


def python_reads(kind: str, data: bytes) -> str:
    """As `Readers`, by Python's reader: an empty text for accepted bytes, else the reason."""
    try:
        if kind == "dispatch":
            decode_dispatch(data, file="bytes")
        else:
            source = Source("bytes", data)
            read_images(source, read_index(source))
    except PackError as error:
        return error.what
    return ""
