"""The allocator of compile workers (`native/heap.c`), loaded into a worker with LD_PRELOAD.

It is freestanding C, so a library compiled on any x86-64 Linux serves every glibc: a container without a C
compiler takes the host's.
"""

import ctypes
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from aotforge.errors import ToolchainError
from vgpu.native_code import NativeCode, c_compiler

_NATIVE = NativeCode("the compile workers' allocator", "allocator-1", "GNU C11 for x86-64 Linux")
_SOURCE = Path(__file__).parent / "native" / "heap.c"
_FLAGS = (
    "-std=gnu11", "-O2", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns",
    "-fno-stack-protector",
    "-fvisibility=hidden", "-fPIC", "-shared", "-nostdlib", "-Wl,-Bsymbolic", "-Wl,--hash-style=both",
    "-Wl,-z,noexecstack",
)  # fmt: skip
"""Nothing of the C library may be called: neither memset for a loop nor a guard against smashed stacks."""

_OF_COMPILERS = ("libtriton", "libtriton_amd_codegen", "libstdc++")
_RANGES = 8


def allocator_digest() -> str:
    """SHA-256 of the allocator's source, a part of job keys: LLVM lets addresses decide in places."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()


@cache
def build_allocator(folder: Path) -> Path:
    """The library, compiled below the cache `folder` once by CC. Raises ToolchainError, CacheError."""
    command = [*c_compiler(), *_FLAGS]

    def build(made: Path) -> None:
        _NATIVE.run([*command, "-o", str(made), str(_SOURCE)])

    return _NATIVE.store(folder, [allocator_digest(), *_NATIVE.identity(command)], build, suffix=".so")


def begin_heap() -> None:
    """Give the compiler's libraries, as loaded into this process, an empty heap.

    Python, the C library and the loader keep the old one: what they request differs between their versions,
    and must not move what LLVM requests. Raises ToolchainError in a process without the allocator.
    """
    try:
        begin = ctypes.CDLL(None).aotforge_heap_begin
    except AttributeError:
        raise ToolchainError(
            "this process does not run with the compile workers' allocator",
            cause="LD_PRELOAD was lost, or the library could not be loaded",
            hint="start workers through aotforge.compile, with a cache that libraries can be loaded from",
        ) from None
    ranges = compiler_ranges(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    flat = [number for low, size in ranges for number in (low, size)]
    begin.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32]
    if begin((ctypes.c_uint64 * len(flat))(*flat), len(ranges)) < 0:
        raise ToolchainError("the compile workers' allocator has no heap left for a job")


def compiler_ranges(maps: Iterable[str]) -> list[tuple[int, int]]:
    """First address and bytes of each compiler library's code in /proc/<pid>/maps (proc(5)).

    Raises ToolchainError when there is none, or more than the allocator takes.
    """
    ranges = []
    for line in maps:
        span, rights, *_, path = line.split(maxsplit=5) if line.count(" ") > 4 else ("", "", "")
        if "x" in rights and Path(path).name.split(".")[0] in _OF_COMPILERS:
            low, high = (int(text, 16) for text in span.split("-"))
            ranges.append((low, high - low))
    if not 0 < len(ranges) <= _RANGES:
        raise ToolchainError(f"{len(ranges)} pieces of compiler code are loaded, where a few are expected")
    return ranges
