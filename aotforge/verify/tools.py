"""The identity of what judges: a verdict holds for the tools that made it. Imports nothing heavy: a repeated build asks for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path


def tools_digest(family: Path) -> str:
    """SHA-256 of the sources of all that judges a family's images: emulator, interpreter, this room, and the family's folder
    (cases, bounds, peers, reference).
    """
    package = Path(__file__).resolve().parents[1]
    return source_digest(package / "emulator", package / "interpret", package / "verify", family)


def judges_digest(kernels_root: Path, folders: Iterable[str]) -> str:
    """SHA-256 of all that judges the images of several families, numpy's version included: its generators make the cases' numbers."""
    parts = [tools_digest(kernels_root / folder) for folder in sorted(set(folders))]
    return hashlib.sha256("\n".join([version("numpy"), *parts]).encode()).hexdigest()


def source_digest(*folders: Path) -> str:
    """SHA-256 over names and contents of all Python and C sources in and below some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in {".py", ".h", ".c"} and file.is_file():
                data = file.read_bytes()
                digest.update(f"{file.relative_to(folder).as_posix()}\0{len(data)}\0".encode())
                digest.update(data)
        digest.update(b"\1")
    return digest.hexdigest()
