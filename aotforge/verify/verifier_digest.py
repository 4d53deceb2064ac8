"""Digest of the verifier: a verdict is valid only for the sources that made it. Imports nothing heavy."""

import ast
import hashlib
import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from aotforge.base.source_groups import group_digest, group_files
from aotforge.errors import RulesError
from aotforge.plan.closure import import_statements

_NO_DATA = {".py", ".pyc", ".md"}


def family_verifier_digest(family: Path, *, natively: bool = False) -> str:
    """SHA-256 of the verifier's sources and of a family's cases with what they import (bounds, references).

    The family's kernels and rules are left out: the image contains them. `natively`: of images that
    processors execute.
    """
    return _with_family(_sources(natively=natively), family)


def verifier_digest(kernels_root: Path, folders: Iterable[str], *, natively: bool = False) -> str:
    """SHA-256 of the verifier for several families, with numpy's version: its generators make the cases'
    numbers."""
    sources = _sources(natively=natively)
    parts = [_with_family(sources, kernels_root / folder) for folder in sorted(set(folders))]
    return hashlib.sha256("\n".join([version("numpy"), *parts]).encode()).hexdigest()


def _sources(*, natively: bool) -> str:
    """Images for processors call the C library, and differ in the last bits with its version."""
    digest = group_digest("verifier")
    return f"{digest} {group_digest('native verifier')} {platform.libc_ver()[1]}" if natively else digest


def verifier_files(family: Path) -> tuple[str, ...]:
    """Names of a family's files that its `cases.py` needs, itself included, sorted; empty when it has none.

    By relative imports; with a `cases.py` also all data files of the family, which it may read. A file with a
    syntax error imports nothing here: loading the cases reports it. Raises RulesError for an import of what
    no digest covers, with which verdicts would stay when it changes.
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
    data = (path for path in family.rglob("*") if found and _is_data(path))
    return tuple(sorted(found | {path.relative_to(family).as_posix() for path in data}))


def _is_data(path: Path) -> bool:
    """Editors and file systems make and remove files whose names begin with a dot or end with ~ at any
    time."""
    usual = not path.name.startswith(".") and not path.name.endswith("~") and path.suffix not in _NO_DATA
    return usual and path.is_file()


def _imported(folder: PurePosixPath, source: bytes, place: str) -> set[str]:
    """Files that a file in `folder`, shown as `place`, may import: `from .reference import x`, `from . import
    y`, `from ..parts.sums import z`.

    Names of modules and of their members give files alike: those that do not exist are harmless.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    files: set[str] = set()
    for node in import_statements(tree):
        if isinstance(node, ast.Import) or not node.level:
            _check_covered(node, place)
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


def _check_covered(node: ast.Import | ast.ImportFrom, place: str) -> None:
    members = [alias.name for alias in node.names]
    for module in members if isinstance(node, ast.Import) else [str(node.module)]:
        package = module.partition(".")[0]
        inner = [module] if isinstance(node, ast.Import) else [f"{module}.{name}" for name in members]
        known = package == "numpy" or package in sys.stdlib_module_names
        if not known and not (
            package in {"aotforge", "vgpu"} and (_is_verifier(module) or all(map(_is_verifier, inner)))
        ):
            raise RulesError(
                f"{place} imports {module}",
                cause="a change of it would not change the verdicts on the family's images",
                hint="import files of the family relatively, and of others numpy, the standard library and "
                "modules of the verifier, such as aotforge.verify.tensors",
            )


def _is_verifier(module: str) -> bool:
    return f"{module.replace('.', '/')}.py" in _verifier_modules()


@cache
def _verifier_modules() -> frozenset[str]:
    return frozenset(group_files("verifier"))


def _with_family(sources: str, family: Path) -> str:
    digest = hashlib.sha256(sources.encode())
    for name in verifier_files(family):
        try:
            data = (family / name).read_bytes()
        except OSError as error:
            raise RulesError(
                f"{family / name} cannot be read: {error.strerror}",
                cause="the verdicts on the family's images depend on it",
                hint="make it readable, or move it out of the family",
            ) from error
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
