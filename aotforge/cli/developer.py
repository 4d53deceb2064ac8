"""Tests, linters, benchmarks."""

from __future__ import annotations

import sys

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from aotforge.cli.command import ROOT, run_command

_LINTERS = (
    ("-m", "ruff", "format", "--check", "."),
    ("-m", "ruff", "check", "."),
    ("-m", "mypy"),
    (
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-logo",
        "--no-cache",
    ),
    ("-m", "pytest", "-q", "tests/lint"),
)


@task(
    help={
        "slow": "also the sweeps that take minutes",
        "only": "a folder or file below tests/, or a pytest node",
        "jobs": "test processes (default 2)",
    }
)
def test(c: Context, slow: bool = False, only: str = "tests", jobs: int = 2) -> None:
    """Run the test suite."""
    command = [sys.executable, "-m", "pytest", only, "-q", "-n", str(jobs), "--dist", "worksteal"]
    raise Exit(code=run_command(command if slow else [*command, "-m", "not slow"]))


@task
def lint(c: Context) -> None:
    """Formatting, lint, strict types, order of imports, conventions."""
    for tool in _LINTERS:
        if code := run_command([sys.executable, *tool]):
            raise Exit(code=code)


@task(help={"name": "one benchmark, e.g. pack_size (default: all)"})
def bench(c: Context, name: str | None = None) -> None:
    """Measure speed and size as ratios against peers; see docs/benchmarks.md."""
    found = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    if name and name not in found:
        raise Exit(f"unknown benchmark {name}; known: {', '.join(found)}", code=10)
    for stem in [name] if name else found:
        code = run_command([sys.executable, "-m", f"benchmarks.{stem}"])
        if code:
            raise Exit(code=code)


TASKS = (("", "test", test), ("", "lint", lint), ("", "bench", bench))
