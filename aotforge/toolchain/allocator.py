"""The allocator of compile workers (`native/heap.c`): compiled once, loaded into a worker with LD_PRELOAD.

    from aotforge.toolchain.allocator import allocator_digest, build_allocator, begin_heap

It is freestanding C, so a library compiled on any x86-64 Linux serves every glibc: a container without a C compiler takes the host's.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from aotforge.errors import CacheError, ToolchainError

_SOURCE = Path(__file__).parent / "native" / "heap.c"
_FLAGS = (
    "-std=gnu11", "-O2", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-fno-stack-protector",
    "-fvisibility=hidden", "-fPIC", "-shared", "-nostdlib", "-Wl,-Bsymbolic", "-Wl,--hash-style=both", "-Wl,-z,noexecstack",
)  # fmt: skip
"""Nothing of the C library may be called: neither memset for a loop nor a guard against smashed stacks."""

_OF_COMPILERS = ("libtriton", "libtriton_amd_codegen", "libstdc++")
_RANGES = 8


def allocator_digest() -> str:
    """SHA-256 of the allocator's source: part of every job's key, because LLVM lets addresses decide in places."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()


@cache
def build_allocator(folder: Path) -> Path:
    """The library, compiled below the cache `folder` unless it is there; CC names the compiler.

    The file appears atomically, so processes may race. Raises ToolchainError without a C compiler, CacheError.
    """
    command = [*(shlex.split(os.environ.get("CC", "")) or ["cc"]), *_FLAGS]
    parts = [allocator_digest(), *command, _compiler_version(command[0])]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = folder.absolute() / "allocator-1" / f"{name}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
            made = Path(scratch) / "heap.so"
            _run([*command, "-o", str(made), str(_SOURCE)])
            made.replace(path)
    except OSError as error:
        raise CacheError(
            f"cannot keep the compile workers' allocator in {path.parent}: {error.strerror or error}"
        ) from error
    return path


def begin_heap() -> None:
    """Give the compiler's libraries, as loaded into this process, an empty heap.

    Python, the C library and the loader keep the old one: what they request differs between their versions, and must not
    move what LLVM requests. Raises ToolchainError in a process without the allocator.
    """
    try:
        begin = ctypes.CDLL(None).aotforge_heap_begin
    except AttributeError:
        raise ToolchainError(
            "this process does not run with the compile workers' allocator",
            cause="LD_PRELOAD was lost, or the library could not be loaded",
            hint="start workers through aotforge.compile, with a cache folder from which libraries can be loaded",
        ) from None
    ranges = compiler_ranges(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    flat = [number for low, size in ranges for number in (low, size)]
    begin.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32]
    if begin((ctypes.c_uint64 * len(flat))(*flat), len(ranges)) < 0:
        raise ToolchainError("the compile workers' allocator has no heap left for a job")


def compiler_ranges(maps: Iterable[str]) -> list[tuple[int, int]]:
    """First address and bytes of each compiler library's code, from the lines of /proc/<pid>/maps (see proc(5)).

    Raises ToolchainError when there is none, or more than the allocator takes.
    """
    found = []
    for line in maps:
        span, rights, *_, path = line.split(maxsplit=5) if line.count(" ") > 4 else ("", "", "")
        if "x" in rights and Path(path).name.split(".")[0] in _OF_COMPILERS:
            low, high = (int(text, 16) for text in span.split("-"))
            found.append((low, high - low))
    if not 0 < len(found) <= _RANGES:
        raise ToolchainError(f"{len(found)} pieces of compiler code are loaded, where a few are expected")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(
            f"{command[0]} cannot compile the compile workers' allocator:\n{done.stderr[:2000]}",
            cause="a compiler without GNU C11 for x86-64 Linux",
            hint="use gcc 9 or clang 12, or newer, or set CC",
        )


def _compiler_version(compiler: str) -> str:
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise ToolchainError(
            f"no C compiler: {compiler} cannot be run: {error.strerror}",
            cause="the allocator of compile workers is compiled once",
            hint="install gcc or clang, or set CC",
        ) from error
