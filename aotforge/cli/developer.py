"""Tests, linters, benchmarks."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from aotforge.cli.command import (
    HOME,
    ROOT,
    Cache,
    Json,
    cli_command,
    job_count,
    named_cache,
    print_checked,
    print_either,
    print_report,
    run_command,
)
from aotforge.errors import UnknownNameError, suggest

LINTERS: tuple[tuple[str, ...], ...] = (
    (sys.executable, "-m", "ruff", "format", "--check", "."),
    (sys.executable, "-m", "ruff", "check", "."),
    (sys.executable, "-m", "mypy"),
    (
        *(sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"),
        *("--no-logo", "--no-cache"),
    ),
    ("zizmor", "--offline", "--quiet", ".github/workflows"),
    (sys.executable, "-m", "pytest", "-q", "tests/lint"),
)


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        if code := run_command(command):
            sys.exit(code)


@cli_command("test")
def test(
    slow: Annotated[bool, "also the sweeps that take minutes"] = False,
    only: Annotated[str, "a folder or file below tests/, or a pytest node"] = "tests",
    jobs: Annotated[int, "test processes (default 2)"] = 2,
    require_all: Annotated[bool, "a skip fails unless tests/allowed_skips.txt allows its reason"] = False,
) -> None:
    """Run the test suite."""
    command = [sys.executable, "-m", "pytest", only, "-q", "-n", str(job_count(jobs)), "--dist", "worksteal"]
    command += ["--require-all"] if require_all else []
    sys.exit(run_command(command if slow else [*command, "-m", "not slow"]))


@cli_command("lint")
def lint() -> None:
    """Formatting, lint, strict types, order of imports, workflows, conventions."""
    _run_all(LINTERS)


@cli_command("doctor")
def doctor(
    purpose: Annotated[str, "build, windows, containers, install; several are separated by commas"] = "build",
    cache: Cache = None,
    output: Annotated[str | None, "folder of releases (default: releases/dist)"] = None,
    json: Json = False,
) -> None:
    """Check what this machine offers to a build or an installation; each line that fails has its cure."""
    from aotforge.devtools.doctor import Request, examine

    request = Request(
        root=ROOT,
        cache=named_cache(cache),  # one of the checks
        output=Path(output or ROOT / "releases" / "dist").absolute(),
        environment=os.environ,
    )
    report = examine(request, [one.strip() for one in purpose.split(",")])
    print_checked(report, report.require_passed, json=json)


@cli_command("wheel")
def wheel(
    output: Annotated[str | None, "folder for the wheel (default: releases/dist/wheels)"] = None,
    json: Json = False,
) -> None:
    """Make the wheel with the console script `aotforge`, vgpu and ttcpu; equal sources give equal bytes."""
    from aotforge.base.files import make_folders, output_errors
    from aotforge.formats.archive import sha256_file
    from aotforge.release.wheels import build_package

    folder = Path(output or ROOT / "releases" / "dist" / "wheels").absolute()
    with output_errors(folder):
        make_folders(folder)
        path = build_package(ROOT, folder)
    digest = sha256_file(path)
    print_either({"file": str(path), "sha256": digest}, [f"{digest}  {path}"], json=json)


@cli_command("docs")
def docs(
    output: Annotated[
        str | None, "folder for the site, which is replaced (default: releases/dist/docs)"
    ] = None,
    json: Json = False,
) -> None:
    """Build the documentation as a static site; a dead link fails. The first run fetches the pinned tools."""
    from aotforge.devtools.docs_site import build_site

    folder = Path(output or ROOT / "releases" / "dist" / "docs").absolute()
    print_report(build_site(ROOT, folder, home=HOME), json=json)


@cli_command("python", forwards=True)
def python(arguments: Annotated[Sequence[str], "arguments of the interpreter"]) -> None:
    """Run the environment's Python, which has Triton and numpy, e.g. on a script of yours."""
    os.execv(sys.executable, [sys.executable, *arguments])


@cli_command("run", forwards=True)
def run(arguments: Annotated[Sequence[str], "FILE.py and its arguments"]) -> None:
    """Run a Python script whose Triton kernels execute on the CPU, compiled by the pinned Triton; see docs/cpu-backend.md."""
    # not -m: the script's own folder, and not the current one, comes first among the places that modules are imported from
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; runpy.run_module('ttcpu', run_name='__main__')"
    os.execv(sys.executable, [sys.executable, "-P", "-c", start, *arguments])


@cli_command("bench")
def bench(name: Annotated[str | None, "one benchmark, e.g. pack_size (default: all)"] = None) -> None:
    """Measure speed and size as ratios against peers; see docs/benchmarks.md."""
    found = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    if name and name not in found:
        raise UnknownNameError(f"unknown benchmark {name}", hint=suggest(name, found))
    _run_all([[sys.executable, "-m", f"benchmarks.{stem}"] for stem in ([name] if name else found)])
