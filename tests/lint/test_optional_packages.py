"""Packages that not every environment has: tests are collected without PyTorch, tasks start with the packages
that `dev` installs."""

from __future__ import annotations

import ast
import inspect
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.flags import TASKS
from tests.lint.imports import ROOT, imported, imported_by, reached

OPTIONAL = {"torch", "tvm_ffi"}
RELEASES = {"boto3", "botocore", "cryptography", "cyclonedx", "packageurl", "securesystemslib", "tuf"}
"""Packages of requirements/release.txt that build.txt does not have."""


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
