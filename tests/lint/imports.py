"""Imports of modules, read from their sources: nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def file_of(module: str) -> Path | None:
    """The file of a module of this checkout."""
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def imported_by(statements: Iterable[ast.AST], path: Path) -> frozenset[str]:
    """Modules that these statements of a file import."""
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file imports when it is imported itself."""
    return imported_by(ast.parse(path.read_text(encoding="utf-8")).body, path)


def reached(first: Iterable[str], package: str) -> dict[str, str]:
    """Modules that are imported with the `first`, through modules of `package`, each with the module that
    imports it."""
    found = dict.fromkeys(first, "")
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        if name.partition(".")[0] == package and (file := file_of(name)):
            new = {one: name for one in imported(file) if one not in found}
            found |= new
            waiting += new
    return found
