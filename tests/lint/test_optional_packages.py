"""Packages that not every environment has: tests are collected without PyTorch, tasks start with the packages
that `dev` installs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.flags import TASKS
from tests.lint.language import ROOT

OPTIONAL = {"torch", "tvm_ffi"}
RELEASES = {"boto3", "botocore", "cryptography", "cyclonedx", "packageurl", "securesystemslib", "tuf"}
"""Packages of requirements/release.txt that build.txt does not have."""


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


@pytest.mark.parametrize("folder", ["unit", "integration", "e2e", "campaigns"])
def test_no_test_module_imports_an_optional_package(folder: str) -> None:
    for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
        found = reached(imported(path), "tests")
        needed = {name.partition(".")[0] for name in found} & OPTIONAL
        assert not needed, f"{path.relative_to(ROOT)} imports {', '.join(needed)} when it is collected"


def test_an_import_through_another_module_is_found() -> None:
    worker = ROOT / "tests" / "integration" / "pytorch" / "compare.py"
    assert "torch" in reached(imported(worker), "tests")


def with_releases() -> tuple[str, ...]:
    """Patterns of the tasks for which `dev` installs the packages of releases, or of the tests."""
    text = (ROOT / "dev").read_text(encoding="utf-8")
    found = re.findall(r"^ {4}([a-z*| .]+)\) echo (?:release|test)\b", text, re.MULTILINE)
    assert len(found) == 2
    return tuple(pattern.strip() for line in found for pattern in line.split("|"))


def needed_by(task: str) -> dict[str, str]:
    """Packages of releases that are imported when a task starts, each with the module that imports it."""
    body = inspect.unwrap(TASKS[task].body)
    path = Path(inspect.getfile(body))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (function,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == body.__name__
    ]
    first = imported_by(ast.walk(function), path) | imported(path)
    return {
        name.partition(".")[0]: by
        for name, by in reached(first, "aotforge").items()
        if name.partition(".")[0] in RELEASES
    }


@pytest.mark.parametrize("task", TASKS)
def test_a_task_starts_with_the_packages_that_are_installed_for_it(task: str) -> None:
    if not any(fnmatch(task, pattern) for pattern in with_releases()):
        assert needed_by(task) == {}


def test_a_task_of_releases_needs_them() -> None:
    assert needed_by("release.publish") and needed_by("install")
