"""The interpreter as a library: generated C text, compiled and loaded.

It is compiled once per compiler, processor, wavefront width and variant, so a cache folder may be shared between machines.
"""

import ctypes
from functools import cache
from pathlib import Path

from aotforge.base.machine import default_cache, processor
from aotforge.errors import ToolchainError
from aotforge.toolchain.native_code import NativeCode, c_compiler
from aotforge.virtual_gpu.emulator import native
from aotforge.virtual_gpu.emulator.generate import Variant, interpreter

_NATIVE = NativeCode("the interpreter", "emulator-1", "GNU C11")
_FLAGS = (
    "-std=gnu11 -O2 -ftree-vectorize -march=native -fno-strict-aliasing -ffp-contract=off -fno-math-errno "
    "-fno-trapping-math -fPIC -shared -w -Wl,-Bsymbolic"
)
"""-Bsymbolic: the virtual HIP loads it into programs that may have a `run` or `step` of their own."""


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
    structures = (ctypes.sizeof(native.Instruction), native.wave_bytes(lanes), ctypes.sizeof(native.Launch))
    expected = (*structures, lanes)
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
    command = [*c_compiler(), *_FLAGS.split(), f"-DLANES={lanes}"]
    text = interpreter(variant=variant)

    def build(made: Path) -> None:
        source = made.with_name("interpreter.c")
        source.write_text(text)
        _NATIVE.run([*command, "-o", str(made), str(source), "-lm"])

    return _NATIVE.store(folder, [text, *_NATIVE.identity(command), processor()], build, suffix=".so")
