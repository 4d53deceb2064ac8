"""Launch of a compiled kernel: arguments and grid in memory, programs distributed over threads."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_LAUNCH = struct.Struct("<iii4xqqQQ")
"""Grid; first and last+1 program in linear order; scratch memory; address of the status word."""

_CHUNKS = 8
"""Pieces a thread takes in turn, so that programs of different length are shared out evenly."""

SCALARS = {
    "i1": "?7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u1": "?7x", "u8": "B7x", "u16": "H6x", "u32": "I4x",
    "u64": "Q", "fp32": "f4x", "f32": "f4x", "fp64": "d",
}  # fmt: skip
"""How an argument of Triton's type is in its 8 bytes; pointers are unsigned 64-bit numbers."""


def thread_count() -> int:
    """Threads of a launch: AOTFORGE_CPU_THREADS, else OMP_NUM_THREADS, else the processors this process may use."""
    for name in ("AOTFORGE_CPU_THREADS", "OMP_NUM_THREADS"):
        if (text := os.environ.get(name, "")).isdigit() and int(text) > 0:
            return int(text)
    return len(os.sched_getaffinity(0))


class _Pool:
    """Threads that are made when they are first needed, and again in a forked child."""

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self.size = 0
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self.executor = None

    def run(self, work: Callable[[], None], threads: int) -> None:
        """Run `work` in `threads` threads, this one among them; the first exception is raised."""
        if self.executor is None or self.size < threads - 1:
            self.executor = ThreadPoolExecutor(threads - 1, thread_name_prefix="aotforge-cpu")
            self.size = threads - 1
        others = [self.executor.submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            for other in others:
                other.result()


_POOL = _Pool()
_SCRATCH = threading.local()


def _scratch(size: int) -> int:
    """The address of this thread's memory, at least `size` bytes, 64-byte aligned."""
    held: ctypes.Array[ctypes.c_char] | None = getattr(_SCRATCH, "memory", None)
    if held is None or len(held) < size + 64:
        held = ctypes.create_string_buffer(size + 64)
        _SCRATCH.memory = held
    address = ctypes.addressof(held)
    return (address + 63) // 64 * 64


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A kernel in this process. `library` keeps the code loaded."""

    library: ctypes.CDLL
    function: Callable[[ctypes.c_void_p, bytes], None]
    scratch: int
    messages: Sequence[str]


def run(kernel: Loaded, grid: tuple[int, int, int], arguments: bytes) -> None:
    """Run every program of the grid and wait. Raises RuntimeError when a `device_assert` fails."""
    count = grid[0] * grid[1] * grid[2]
    if count <= 0:
        return
    status = ctypes.c_int32(0)
    memory = ctypes.create_string_buffer(arguments, len(arguments) + 1)
    where = ctypes.c_void_p(ctypes.addressof(memory))

    def part(begin: int, end: int) -> None:
        launch = _LAUNCH.pack(*grid, begin, end, _scratch(kernel.scratch), ctypes.addressof(status))
        kernel.function(where, launch)

    threads = min(thread_count(), count)
    if threads == 1:
        part(0, count)
    else:
        size = max(1, count // (threads * _CHUNKS))
        starts = itertools.count(0, size)

        def work() -> None:
            while (begin := next(starts)) < count:
                part(begin, min(begin + size, count))

        _POOL.run(work, threads)
    if status.value:
        raise RuntimeError(f"device_assert failed: {kernel.messages[status.value - 1]}")
