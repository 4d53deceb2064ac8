"""Test modules are collected without PyTorch, whose tests are then skipped: they import it in functions and programs of their own."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {"torch", "tvm_ffi"}


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file imports when it is imported itself."""
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def reached(path: Path) -> set[str]:
    """Modules that are imported with a test module, through modules of the tests."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        new = imported(waiting.pop()) - found
        found |= new
        waiting += [file for name in new if name.startswith("tests.") and (file := _file(name))]
    return found


@pytest.mark.parametrize("folder", ["unit", "integration", "e2e", "campaigns"])
def test_no_test_module_imports_an_optional_package(folder: str) -> None:
    for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
        needed = {name.partition(".")[0] for name in reached(path)} & OPTIONAL
        assert not needed, f"{path.relative_to(ROOT)} imports {', '.join(needed)} when it is collected"


def test_an_import_through_another_module_is_found() -> None:
    assert "torch" in reached(ROOT / "tests" / "integration" / "pytorch" / "worker.py")
