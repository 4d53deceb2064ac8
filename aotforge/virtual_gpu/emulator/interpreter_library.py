"""The interpreter as a library: generated C text, compiled and loaded.

It is compiled once per compiler, processor, wavefront width and variant.
Libraries are content-addressed: the name is a hash of the text, the flags, the compiler's version and the processor's flags, so a
cache folder may be shared between machines.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from aotforge.base.machine import processor
from aotforge.errors import CacheError, ToolchainError
from aotforge.virtual_gpu.emulator import native
from aotforge.virtual_gpu.emulator.generate import Variant, interpreter

_FLAGS = (
    "-std=gnu11 -O2 -ftree-vectorize -march=native -fno-strict-aliasing -ffp-contract=off -fno-math-errno "
    "-fno-trapping-math -fPIC -shared -w -Wl,-Bsymbolic"
)
"""-Bsymbolic: the virtual HIP loads it into programs that may have a `run` or `step` of their own."""


def default_cache() -> Path:
    """AOTFORGE_CACHE, else the cache below AOTFORGE_HOME, else a folder of the user's."""
    named, home = os.environ.get("AOTFORGE_CACHE"), os.environ.get("AOTFORGE_HOME")
    if named:
        return Path(named)
    return Path(home) / "cache" if home else Path.home() / ".cache" / "aotforge"


@cache
def load_library(lanes: int, folder: Path | None = None, variant: Variant = "plain") -> ctypes.CDLL:
    """The interpreter for a wavefront width. Raises ToolchainError without a C compiler, CacheError."""
    path = build_library(lanes, folder or default_cache(), variant)
    library = ctypes.CDLL(str(path))
    library.size_of.restype = ctypes.c_uint64
    library.handler.restype = ctypes.c_void_p
    library.handler.argtypes = [ctypes.c_uint32]
    library.run.argtypes = [ctypes.POINTER(native.Launch)]
    library.step.argtypes = [ctypes.c_void_p, ctypes.POINTER(native.Instruction)]
    library.step.restype = None
    expected = (
        ctypes.sizeof(native.Instruction),
        native.wave_bytes(lanes),
        ctypes.sizeof(native.Launch),
        lanes,
    )
    found = tuple(int(library.size_of(what)) for what in range(4))
    if found != expected:
        raise ToolchainError(
            f"the compiled interpreter lays out its structures differently: {found} instead of {expected}",
            cause="a compiler with another ABI than Python's",
            hint="set CC to the system's compiler",
        )
    return library


def build_library(lanes: int, folder: Path, variant: Variant = "plain") -> Path:
    """Compile unless it is there. The file is created atomically, so several processes may do this at once."""
    command = [*shlex.split(os.environ.get("CC", "cc")), *_FLAGS.split(), f"-DLANES={lanes}"]
    text = interpreter(variant=variant)
    path = folder / "emulator-1" / f"{_digest(text, command)}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
            source, made = Path(scratch) / "interpreter.c", Path(scratch) / "interpreter.so"
            source.write_text(text)
            _run_compiler([*command, "-o", str(made), str(source), "-lm"])
            made.replace(path)
    except OSError as error:
        raise CacheError(
            f"cannot keep the interpreter in {path.parent}: {error.strerror or error}"
        ) from error
    return path


def _digest(text: str, command: list[str]) -> str:
    parts = [text, *command, _compiler_version(command[0]), processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _compiler_version(compiler: str) -> str:
    return _run_compiler([compiler, "--version"])


def _run_compiler(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ToolchainError(
            f"no C compiler: {command[0]} was not found",
            cause="the emulator compiles its interpreter once",
            hint="install gcc or clang, or set CC",
        ) from error
    if done.returncode:
        raise ToolchainError(
            f"{command[0]} cannot compile the interpreter:\n{done.stderr[:2000]}",
            cause="a compiler without GNU C11",
            hint="use gcc 9 or clang 12, or newer",
        )
    return done.stdout
