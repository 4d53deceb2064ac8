"""The identity of what judges: a verdict holds for the tools that made it. Imports nothing heavy: a repeated build asks for it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path, PurePosixPath

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOMS = ("emulator", "interpret", "verify")
_METADATA = "compile/codeobject.py"  # the emulator launches as it reads an image's metadata


def tools_digest(family: Path) -> str:
    """SHA-256 of the sources of all that judges a family's images: emulator, interpreter, this room, and the family's cases with what
    they import (bounds, peers, reference). Its kernels and rules have no part: they are in the image.
    """
    return _with_family(_rooms(), family)


def judges_digest(kernels_root: Path, folders: Iterable[str]) -> str:
    """SHA-256 of all that judges the images of several families, numpy's version included: its generators make the cases' numbers."""
    rooms = _rooms()
    parts = [_with_family(rooms, kernels_root / folder) for folder in sorted(set(folders))]
    return hashlib.sha256("\n".join([version("numpy"), *parts]).encode()).hexdigest()


def judging_files(family: Path) -> tuple[str, ...]:
    """Names of a family's files that its `cases.py` needs, itself included, sorted; empty when it has none.

    By the text's relative imports. A file that is no Python is its own business: loading the cases says so.
    """
    found: set[str] = set()
    wanted = ["cases.py"]
    while wanted:
        name = wanted.pop()
        if name in found or not (family / name).is_file():
            continue
        found.add(name)
        wanted += sorted(_imported(PurePosixPath(name).parent, (family / name).read_bytes()))
    return tuple(sorted(found))


def _imported(folder: PurePosixPath, source: bytes) -> set[str]:
    """Files that a file in `folder` may import: `from .reference import x`, `from . import peer`, `from ..parts.sums import y`.

    Whether `x` is a module or something in one is not looked up: names of files that are not there are harmless.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    files: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ImportFrom) and node.level):
            continue
        base = folder
        for _ in range(node.level - 1):
            base = base.parent
        places = [base]
        for part in node.module.split(".") if node.module else ():
            places.append(places[-1] / part)
        places += [places[-1] / alias.name for alias in node.names]
        files |= {str(place.with_suffix(".py")) for place in places if place.name}
        files |= {str(place / "__init__.py") for place in places}
    return files


def _rooms() -> str:
    metadata = {_METADATA: (_PACKAGE / _METADATA).read_bytes()}
    return _digest({"metadata": metadata, **{room: _sources(_PACKAGE / room) for room in _ROOMS}})


def _with_family(rooms: str, family: Path) -> str:
    files = {name: (family / name).read_bytes() for name in judging_files(family)}
    return _digest({rooms: files})


def _sources(folder: Path) -> dict[str, bytes]:
    """Python and C sources in and below a folder by name."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.suffix in {".py", ".h", ".c"} and file.is_file()
    }


def _digest(groups: dict[str, dict[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for group, files in groups.items():
        digest.update(f"{group}\0{len(files)}\0".encode())
        for name, data in sorted(files.items()):
            digest.update(f"{group}\0{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
