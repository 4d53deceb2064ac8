"""Calls of `aotforge_launch` on this processor: `python -m tests.e2e.cpu_calls PREFIX`.

Prints the name of each group of calls that was right. The installed pack serves float16.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

CPU, NOT_SUPPORTED, TYPES = 1, 801, {"ptr": 0, "i32": 1, "i64": 2, "u64": 3, "f32": 4}
_INVALID_VALUE, _FP16 = 1, 2


class _As(ctypes.Union):
    _fields_ = (
        *(("ptr", ctypes.c_void_p), ("i32", ctypes.c_int32), ("i64", ctypes.c_int64)),
        *(("u64", ctypes.c_uint64), ("f32", ctypes.c_float)),
    )


class Value(ctypes.Structure):
    """`aotforge_value`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("as_", _As),
    )


class Library:
    """The installed launcher."""

    def __init__(self, prefix: Path) -> None:
        self.library = ctypes.CDLL(str(prefix / "lib" / "libaotriton_v2.so"))

    def add(self, left: int, right: int, out: int, count: int) -> int:
        """`add_dense` of float16 at these addresses; the result of the call."""
        alpha = int(np.float64(0.5).view(np.int64))
        given = (
            *(("input", "ptr", left), ("other", "ptr", right), ("out", "ptr", out)),
            *(("alpha", "i64", alpha), ("n", "i64", count), ("dtype", "i32", _FP16)),
        )
        values = (Value * len(given))()
        for value, (name, kind, number) in zip(values, given, strict=True):
            value.name, value.type = name.encode(), TYPES[kind]
            setattr(value.as_, kind, number)
        return int(self.library.aotforge_launch(b"add_dense", values, len(given), CPU, None))

    def is_right(self, count: int, skew: int = 0) -> bool:
        """A call on `count` elements, `skew` bytes from an aligned address."""
        rng = np.random.default_rng(count)
        numbers = [rng.integers(0, 100, count).astype(np.float16) for _ in range(2)]
        memory = [np.zeros(count * 2 + 128, dtype=np.uint8) for _ in range(3)]
        starts = [-m.ctypes.data % 64 + skew for m in memory]
        for m, start, values in zip(memory, starts, numbers, strict=False):
            m[start : start + count * 2] = values.view(np.uint8)
        left, right, out = (m.ctypes.data + start for m, start in zip(memory, starts, strict=True))
        if self.add(left, right, out, count) != 0:
            return False
        found = memory[2][starts[2] : starts[2] + count * 2].copy().view(np.float16)
        untouched = not memory[2][: starts[2]].any() and not memory[2][starts[2] + count * 2 :].any()
        return untouched and np.array_equal(found, numbers[0] + np.float16(0.5) * numbers[1])


def _tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def threads(calls: Library) -> bool:
    """A caller's number of threads, itself included."""
    before = _tasks()
    was = calls.library.aotforge_cpu_threads(1)
    alone = calls.is_right(500_000) and _tasks() == before
    calls.library.aotforge_cpu_threads(4)
    together = calls.is_right(500_000) and _tasks() == before + 3
    return alone and together and calls.library.aotforge_cpu_threads(0) == 4 and was == 0


def alignment(calls: Library) -> bool:
    """Aligned, aligned to elements, and not even that."""
    return all(calls.is_right(count, skew) for count in (1, 8, 1000, 4099) for skew in (0, 2, 1))


def bad_values(calls: Library) -> bool:
    """No elements, null pointers, more programs than a grid has."""
    one = np.zeros(64, dtype=np.float16)
    at = one.ctypes.data
    nulls = [calls.add(0, at, at, 32), calls.add(at, 0, at, 32), calls.add(at, at, 0, 32)]
    return (
        calls.add(0, 0, 0, 0) == 0
        and nulls == [_INVALID_VALUE] * 3
        and calls.add(at, at, at, 2**31 * 2048) == NOT_SUPPORTED
        and calls.add(at, at, at, -1) != 0
        and not one.any()
    )


def callers(calls: Library) -> bool:
    """Several threads of the program at once."""
    found: list[bool] = []
    many = [
        threading.Thread(target=lambda: found.extend(calls.is_right(100_000 + i) for i in range(8)))
        for _ in range(4)
    ]
    for one in many:
        one.start()
    for one in many:
        one.join()
    return len(found) == 32 and all(found)


def forked(calls: Library) -> bool:
    """A child has threads of its own; the parent's stay."""
    calls.library.aotforge_cpu_threads(3)
    before = calls.is_right(300_000)
    child = os.fork()
    if child == 0:
        os._exit(0 if calls.is_right(300_000) and _tasks() == 3 else 1)
    return before and os.waitpid(child, 0)[1] == 0 and calls.is_right(300_000)


def parallel_region(calls: Library) -> bool:
    """A call inside an OpenMP parallel region uses its own thread."""
    calls.library.aotforge_cpu_threads(0)
    openmp = ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
    found: list[tuple[bool, int]] = []

    def body(_: object) -> None:
        before = _tasks()
        found.append((calls.is_right(200_000), _tasks() - before))

    kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
    openmp.GOMP_parallel(kept, None, 2, 0)
    return found == [(True, 0)] * 2


def unloaded(calls: Library) -> bool:
    """dlclose ends the threads."""
    calls.library.aotforge_cpu_threads(3)
    right, before = calls.is_right(300_000), _tasks()
    _ctypes.dlclose(calls.library._handle)
    return right and before >= 3 and _tasks() < before


GROUPS: tuple[Callable[[Library], bool], ...] = (
    parallel_region, threads, alignment, bad_values, callers, forked, unloaded,
)  # fmt: skip


def main(prefix: Path) -> None:
    """Runs every group."""
    calls = Library(prefix)
    for group in GROUPS:
        assert group(calls), group.__name__
        sys.stdout.write(f"{group.__name__}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
