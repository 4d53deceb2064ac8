"""Digest of the verifier: a verdict is valid only for the sources that made it. Imports nothing heavy."""

import ast
import hashlib
import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from aotforge.base.source_groups import group_digest, group_files
from aotforge.errors import RulesError
from aotforge.plan.closure import SourceTree

_NO_DATA = {".py", ".pyc", ".md"}


def family_verifier_digest(family: Path, *, natively: bool = False) -> str:
    """SHA-256 of the verifier's sources and of a family's cases with what they import, without kernels.

    `natively`: of images that processors execute.
    """
    return _with_family(_sources(natively=natively), family)


def verifier_digest(kernels_root: Path, folders: Iterable[str], *, natively: bool = False) -> str:
    """SHA-256 of the verifier for several families, with numpy's version: it draws the cases' numbers."""
    sources = _sources(natively=natively)
    parts = [_with_family(sources, kernels_root / folder) for folder in sorted(set(folders))]
    return hashlib.sha256("\n".join([version("numpy"), *parts]).encode()).hexdigest()


def _sources(*, natively: bool) -> str:
    """Images for processors call the C library, and differ in the last bits with its version."""
    digest = group_digest("verifier")
    return f"{digest} {group_digest('native verifier')} {platform.libc_ver()[1]}" if natively else digest


def verifier_files(family: Path) -> tuple[str, ...]:
    """Files below kernels/ that a family's `cases.py` imports, itself included, and its data; none without.

    Raises RulesError for an import of what no digest covers: verdicts would stay when it changes.
    """
    if not (family / "cases.py").is_file():
        return ()
    found = _Sources(root=family.parent).closure(f"{family.name}/cases.py")
    data = (path.relative_to(family.parent).as_posix() for path in family.rglob("*") if _is_data(path))
    return tuple(sorted({*found, *data}))


def _is_data(path: Path) -> bool:
    """Editors make and remove files whose names begin with a dot or end with ~ at any time."""
    usual = not path.name.startswith(".") and not path.name.endswith("~") and path.suffix not in _NO_DATA
    return usual and path.is_file()


class _Sources(SourceTree):
    """Modules that cases import: they may also import numpy, the standard library and the verifier."""

    def _check_absolute(self, path: str, node: ast.Import | ast.ImportFrom, name: str) -> None:
        package = name.partition(".")[0]
        if package == "numpy" or package in sys.stdlib_module_names or _is_verifier(name):
            return
        members = [f"{name}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        if not members or not all(map(_is_verifier, members)):
            raise RulesError(
                f"{path} imports {name}",
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
        data = (family.parent / name).read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
