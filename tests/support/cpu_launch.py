"""Launches of compiled CPU kernels without Triton."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ttcpu.launch import REQUEST, address_of, checked_grid, launcher, load_library, report, thread_count


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A kernel in this process. `library` keeps the code loaded; `messages` of its assertions."""

    library: ctypes.CDLL
    address: int
    scratch: int
    messages: Sequence[str]


def load(name: str, code: bytes, scratch: int, messages: Sequence[str]) -> Loaded:
    """Load a compiled kernel."""
    library, function = load_library(name, code)
    return Loaded(library=library, address=address_of(function), scratch=scratch, messages=messages)


def run(kernel: Loaded, grid: tuple[int, int, int], arguments: bytes) -> None:
    """Run every program of the grid and wait. Raises RuntimeError for a `device_assert`, ValueError."""
    request = REQUEST.pack(*checked_grid(grid), thread_count(), kernel.address, kernel.scratch)
    report(launcher()(request + arguments, None), kernel.messages, kernel.scratch)
