"""A fuzz target."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[bytes], None]
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, kw_only=True)
class Target:
    """`open` makes the function and removes its files afterwards; `modules`: parts of names of the files that
    are tested, whose lines count as coverage; `compiled`: it needs a C++ compiler."""

    open: Callable[[], AbstractContextManager[tuple[Sequence[bytes], Run]]]
    modules: tuple[str, ...]
    compiled: bool = False


@contextmanager
def folder() -> Iterator[Path]:
    """A scratch folder."""
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as name:
        yield Path(name)
