"""A fuzz target, and the digest of the sources that it tests."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

Run = Callable[[bytes], None]
ROOT = Path(__file__).resolve().parents[3]
_SOURCES = (".py", ".cpp", ".h", ".c", ".def")


@dataclass(frozen=True, kw_only=True)
class Target:
    """`open` makes the function and removes its files afterwards; `modules`: parts of names of the files that are tested, whose lines
    count as coverage; `packages`: installed ones that are tested too; `compiled`: it needs a C++ compiler."""

    open: Callable[[], AbstractContextManager[tuple[Sequence[bytes], Run]]]
    modules: tuple[str, ...]
    packages: tuple[str, ...] = ()
    compiled: bool = False


def sources_digest(modules: Sequence[str], packages: Sequence[str] = ()) -> str:
    """The digest of the tested sources: minutes of campaigns count for these alone."""
    total = hashlib.sha256()
    for tree in ("aotforge", "vgpu", "runtime"):
        for path in sorted((ROOT / tree).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in _SOURCES and any(part in name for part in modules):
                total.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    for package in packages:
        total.update(f"{package} {version(package)}\0".encode())
    return total.hexdigest()[:16]


@contextmanager
def folder() -> Iterator[Path]:
    """A scratch folder."""
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as name:
        yield Path(name)
