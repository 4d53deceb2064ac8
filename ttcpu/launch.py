"""Launch of a compiled kernel: a request in memory, programs on threads by native code (pool.ll)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import resource
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

REQUEST = struct.Struct("<IIIIQQ")
"""Grid; threads; the kernel's function; bytes of scratch memory. The arguments follow."""

_NAME = "aotforge_cpu_launch"
_NO_MEMORY = -1
_LARGEST_GRID = 2**31 - 1

SCALARS = {
    "i1": "?7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u1": "?7x", "u8": "B7x", "u16": "H6x",
    "u32": "I4x", "u64": "Q", "fp32": "f4x", "f32": "f4x", "fp64": "d",
}  # fmt: skip
"""How an argument of Triton's type is in its 8 bytes; pointers are unsigned 64-bit numbers."""


@functools.cache
def _default_threads() -> int:
    """OMP_NUM_THREADS, else the processors that this process may use."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else len(os.sched_getaffinity(0))


def thread_count() -> int:
    """Threads of a launch: `torch.get_num_threads()`, else OMP_NUM_THREADS or the processors."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else _default_threads()


def load_library(name: str, code: bytes) -> tuple[ctypes.CDLL, Callable[[bytes, bytes | None], int]]:
    """A shared library in this process, and its exported function. It stays loaded. Raises OSError."""
    # the kernels' functions of the C library are found there; below x86-64-v3 also conversions of float16
    for known in ("libm.so.6", "libgcc_s.so.1"):
        ctypes.CDLL(known, mode=ctypes.RTLD_GLOBAL)
    with tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".so") as file:
        file.write(code)
        file.flush()
        library = ctypes.CDLL(file.name)
    function = library[name]
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    function.restype = ctypes.c_int32
    return library, function


@functools.cache
def launcher() -> Callable[[bytes, bytes | None], int]:
    """The native function that takes a request. It is compiled once per cache folder."""
    from triton.runtime.cache import get_cache_manager  # noqa: PLC0415 - `import triton` imports this module

    from .codegen import assembly, optimised, shared_library  # noqa: PLC0415 - as above
    from .levels import LEVELS  # noqa: PLC0415 - as above

    text = (Path(__file__).parent / "pool.ll").read_text()
    cache = get_cache_manager(hashlib.sha256(text.encode()).hexdigest())
    name, group = f"{_NAME}.so", f"{_NAME}.json"
    kept = (cache.get_group(group) or {}).get(name)  # a group: its files are compared with their digests
    if kept is None:
        code = shared_library(assembly(optimised(_NAME, text, LEVELS[-1]), LEVELS[-1]), LEVELS[-1])
        kept = cache.put(code, name, binary=True)
        cache.put_group(group, {name: kept})
    return load_library(_NAME, Path(kept).read_bytes())[1]


def address_of(function: Callable[..., int]) -> int:
    """Where a loaded function is."""
    pointer = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type] # no type for functions
    return pointer.value or 0


def ends_well(request: bytes) -> bool:
    """Whether a forked child executes a launch without a fault. It changes shared memory."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for fault in (signal.SIGSEGV, signal.SIGBUS):
                signal.signal(fault, signal.SIG_DFL)
            launcher()(request, None)
        finally:
            os._exit(0)
    return not os.WIFSIGNALED(os.waitpid(child, 0)[1])


def checked_grid(grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The grid; one of no programs is fine. Raises ValueError."""
    x, y, z = grid
    if min(grid) < 0 or max(grid) > _LARGEST_GRID or x * y * z >= 1 << 63:
        raise ValueError(
            f"the grid {grid} is not possible: each size is 0 to 2^31 - 1, their product below 2^63"
        )
    return grid


def report(status: int, messages: Sequence[str], scratch: int) -> None:
    """Nothing for status 0. Raises RuntimeError for an assertion, MemoryError."""
    if status == _NO_MEMORY:
        raise MemoryError(f"no memory for the {scratch} bytes that each thread of the kernel needs")
    if status:
        raise RuntimeError(f"device_assert failed: {messages[status - 1]}")
