"""A copy kernel on memory that ends at a page without any access, in a process of its own."""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import struct
import sys
from pathlib import Path

import numpy as np

from tests.integration.ttcpu.features import compile_kernel
from tests.integration.vgpu.coverage.formats import storage
from ttcpu.launch import load, run

BLOCK = 128


def _before_a_guard(size: int) -> tuple[mmap.mmap, int]:
    """Memory of `size` bytes whose next byte is in a page without any access, and its address."""
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = start + pages * mmap.PAGESIZE
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory, end - size


def run_guarded(path: Path, kernel: str, kinds: str, count: int, level: str) -> None:
    """Run it for each type and compare; a wrong access ends the process with a signal."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    for kind in kinds.split():
        signature = {"x": f"*{kind}", "out": f"*{kind}", "n": "i32", "BLOCK": "constexpr"}
        made = compile_kernel(getattr(module, kernel), signature, {"BLOCK": BLOCK}, level)
        numbers = np.arange(count).astype(storage(kind))
        source, source_at = _before_a_guard(numbers.nbytes)
        target, target_at = _before_a_guard(numbers.nbytes)
        ctypes.memmove(source_at, numbers.ctypes.data, numbers.nbytes)
        loaded = load(made.name, made.code, made.scratch, made.messages)
        run(loaded, (-(-count // BLOCK), 1, 1), struct.pack("<QQi4x", source_at, target_at, count))
        found = np.frombuffer(ctypes.string_at(target_at, numbers.nbytes), dtype=storage(kind))
        expected = numbers[::-1] if kernel == "reverse" else numbers
        assert np.array_equal(found, expected), kind
        del source, target
