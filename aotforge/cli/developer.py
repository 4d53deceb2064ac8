"""Tests, linters, benchmarks."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from aotforge.base.child_processes import ENGINE, NETWORK, child_environment, run_child
from aotforge.cli.flags import command
from aotforge.cli.output import Json, print_checked, print_either, print_report, print_result
from aotforge.cli.publish import Trust, checked_index
from aotforge.cli.settings import HOME, ROOT
from aotforge.cli.values import Cache, job_count, named_cache
from aotforge.errors import UnknownNameError, suggest
from aotforge.pipeline.requests import CiRequest

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
    (sys.executable, "-m", "tests.lint.budgets"),
)


def run_command(words: Sequence[str]) -> int:
    """Exit status of a command that runs in the checkout and prints for itself."""
    own = child_environment({"PYTHONPATH": str(ROOT)}, keep=(*NETWORK, *ENGINE))
    return run_child(words, environment=own, cwd=ROOT).returncode


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    for words in commands:
        if code := run_command(words):
            sys.exit(code)


@command("test")
def test(
    slow: Annotated[bool, "also the sweeps that take minutes"] = False,
    only: Annotated[str, "a folder or file below tests/, or a pytest node"] = "tests",
    jobs: Annotated[int, "test processes (default 2)"] = 2,
    require_all: Annotated[bool, "a skip fails unless tests/allowed_skips.txt allows it"] = False,
) -> None:
    """Run the test suite."""
    command = [sys.executable, "-m", "pytest", only, "-q", "-n", str(job_count(jobs)), "--dist", "worksteal"]
    command += ["--require-all"] if require_all else []
    sys.exit(run_command(command if slow else [*command, "-m", "not slow"]))


@command("lint")
def lint() -> None:
    """Formatting, lint, strict types, order of imports, workflows, conventions."""
    _run_all(LINTERS)


@command("doctor")
def doctor(
    purpose: Annotated[str, "build, windows, containers, install; several are separated by commas"] = "build",
    cache: Cache = None,
    output: Annotated[str | None, "folder for the site (default: releases/dist/docs)"] = None,
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


@command("wheel")
def wheel(
    output: Annotated[str | None, "folder for the site (default: releases/dist/docs)"] = None,
    hf_kernel: Annotated[str | None, "instead this release as a package of Hugging Face's kernels"] = None,
    json: Json = False,
) -> None:
    """Make the wheel with the console script `aotforge`, vgpu and ttcpu; equal sources give equal bytes.

    ./dev wheel --output dist
    ./dev wheel --hf-kernel releases/dist/0.11.2b-r1
    """
    from aotforge.base.files import make_folders, output_errors
    from aotforge.formats.archive import sha256_file
    from aotforge.pipeline.hf_package import package_release
    from aotforge.release.wheels import build_package

    if hf_kernel:
        report = package_release(ROOT, Path(hf_kernel).absolute())
        print_either(report.fields(), report.lines(), json=json)
        return
    folder = Path(output or ROOT / "releases" / "dist" / "wheels").absolute()
    with output_errors(folder):
        make_folders(folder)
        path = build_package(ROOT, folder)
    digest = sha256_file(path)
    print_either({"file": str(path), "sha256": digest}, [f"{digest}  {path}"], json=json)


@command("docs")
def docs(
    output: Annotated[str | None, "folder for the site (default: releases/dist/docs)"] = None,
    releases: Annotated[str | None, "instead a page of these releases, with the site in docs/"] = None,
    url: Annotated[str, "with --releases: where the folder will be, for the commands on the page"] = "",
    from_: Annotated[str | None, "with --releases: also list yanked ones, from this place"] = None,
    root: Trust = None,
    json: Json = False,
) -> None:
    """Build the documentation as a static site; a dead link fails. The first run fetches the pinned tools.

    ./dev docs --output /srv/www/docs
    ./dev docs --releases releases/dist/finished --url https://example.org/aotriton
    """
    from aotforge.deliver.install.install_release import install_errors
    from aotforge.deliver.page import DOCS, make_site
    from aotforge.devtools.docs_site import build_site

    place = Path(releases).absolute() if releases else None
    folder = place / DOCS if place else Path(output or ROOT / "releases" / "dist" / "docs").absolute()
    print_report(build_site(ROOT, folder, home=HOME), json=json)
    if place:
        yanked: dict[str, str] = {}
        if from_:
            with install_errors():
                yanked = checked_index(from_, root)[1].index.yanked()
        print_result(f"{make_site(ROOT, place, base_url=url, yanked=yanked)}")


@command("bench")
def bench(name: Annotated[str | None, "one benchmark, e.g. pack_size (default: all)"] = None) -> None:
    """Measure speed and size as ratios against peers; see docs/benchmarks.md."""
    found = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    if name and name not in found:
        raise UnknownNameError(f"unknown benchmark {name}", hint=suggest(name, found))
    _run_all([[sys.executable, "-m", f"benchmarks.{stem}"] for stem in ([name] if name else found)])


@command("ci.matrix")
def matrix(request: CiRequest) -> None:
    """Print the jobs that compile parts of a build, as a JSON list for a GitHub matrix (docs/scale.md)."""
    from json import dumps

    from aotforge.pipeline.ci_matrix import matrix

    print_result(dumps(matrix(request), separators=(",", ":")))
