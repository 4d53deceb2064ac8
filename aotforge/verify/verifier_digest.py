"""Digest of the verifier: a verdict is valid only for the sources that made it. Imports nothing heavy."""

import ast
import hashlib
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from aotforge.base.source_groups import group_digest
from aotforge.errors import RulesError
from aotforge.plan.closure import import_statements

_COVERED = frozenset({"aotforge", "numpy"})
"""Packages whose sources or version the digest has."""


def family_verifier_digest(family: Path, *, natively: bool = False) -> str:
    """SHA-256 of the verifier's sources and of a family's cases with what they import (bounds, references).

    The family's kernels and rules are left out: the image contains them. `natively`: of images that processors execute.
    """
    return _with_family(_sources(natively=natively), family)


def verifier_digest(kernels_root: Path, folders: Iterable[str], *, natively: bool = False) -> str:
    """SHA-256 of the verifier for several families, with numpy's version: its generators make the cases' numbers."""
    sources = _sources(natively=natively)
    parts = [_with_family(sources, kernels_root / folder) for folder in sorted(set(folders))]
    return hashlib.sha256("\n".join([version("numpy"), *parts]).encode()).hexdigest()


def _sources(*, natively: bool) -> str:
    """Images for processors call the C library, and differ in the last bits with its version."""
    digest = group_digest("verifier")
    return f"{digest} {group_digest('native verifier')} {platform.libc_ver()[1]}" if natively else digest


def verifier_files(family: Path) -> tuple[str, ...]:
    """Names of a family's files that its `cases.py` needs, itself included, sorted; empty when it has none.

    By relative imports. A file with a syntax error imports nothing here: loading the cases reports it. Raises RulesError for an import of
    what no digest covers, with which verdicts would stay when it changes.
    """
    found: set[str] = set()
    wanted = ["cases.py"]
    while wanted:
        name = wanted.pop()
        if name in found or not (family / name).is_file():
            continue
        found.add(name)
        place = f"{family.name}/{name}"
        wanted += sorted(_imported(PurePosixPath(name).parent, (family / name).read_bytes(), place))
    return tuple(sorted(found))


def _imported(folder: PurePosixPath, source: bytes, place: str) -> set[str]:
    """Files that a file in `folder`, shown as `place`, may import: `from .reference import x`, `from . import y`, `from ..parts.sums import z`.

    Names of modules and of their members give files alike: those that do not exist are harmless.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    files: set[str] = set()
    for node in import_statements(tree):
        if isinstance(node, ast.Import) or not node.level:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            _check_covered([str(name).partition(".")[0] for name in names], place)
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


def _check_covered(packages: Iterable[str], place: str) -> None:
    if other := [one for one in packages if one not in _COVERED and one not in sys.stdlib_module_names]:
        raise RulesError(
            f"{place} imports {other[0]}",
            cause="a change of it would not change the verdicts on the family's images, and verify --release does not have it",
            hint=f"import files of the family relatively, and of others {', '.join(sorted(_COVERED))} only",
        )


def _with_family(sources: str, family: Path) -> str:
    digest = hashlib.sha256(sources.encode())
    for name in verifier_files(family):
        data = (family / name).read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
