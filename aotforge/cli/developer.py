"""Tests, linters, benchmarks, root filesystems of build steps."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from aotforge.base.child_processes import (
    ENGINE,
    NETWORK,
    child_environment,
    fixed_environment,
    run_child,
)
from aotforge.base.progress import LineObserver, Observer, Report
from aotforge.cli.flags import command
from aotforge.cli.output import Result, print_result, print_status
from aotforge.cli.publish import Trust, checked_index
from aotforge.cli.settings import HOME, ROOT
from aotforge.cli.values import Cache, cache_folder, job_count, named_cache
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
    fast: Annotated[bool, "only tests of pure functions, in about a minute"] = False,
    only: Annotated[str | None, "a folder or file below tests/, or a pytest node (default: tests)"] = None,
    jobs: Annotated[int, "test processes (default 2)"] = 2,
    require_all: Annotated[bool, "a skip fails unless tests/allowed_skips.txt allows it"] = False,
) -> None:
    """Run the test suite."""
    tests = only or ("tests/unit" if fast else "tests")
    command = [sys.executable, "-m", "pytest", tests, "-q", "-n", str(job_count(jobs)), "--dist", "worksteal"]
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
) -> Report:
    """Check what this machine offers to a build or an installation; each line that fails has its cure."""
    from aotforge.devtools.doctor import Request, examine

    request = Request(
        root=ROOT,
        cache=named_cache(cache),  # one of the checks
        output=Path(output or ROOT / "releases" / "dist").absolute(),
        environment=os.environ,
    )
    return examine(request, [word.strip() for word in purpose.split(",")])


@command("wheel")
def wheel(
    output: Annotated[str | None, "folder for the site (default: releases/dist/docs)"] = None,
    hf_kernel: Annotated[str | None, "instead this release as a package of Hugging Face's kernels"] = None,
) -> Report:
    """Make the wheel with the console script `aotforge`, vgpu and ttcpu; equal sources give equal bytes.

    ./dev wheel --output dist
    ./dev wheel --hf-kernel releases/dist/0.11.2b-r1
    """
    from aotforge.base.files import make_folders, output_errors
    from aotforge.formats.archive import sha256_file
    from aotforge.pipeline.hf_package import package_release
    from aotforge.release.wheels import build_package

    if hf_kernel:
        folder, variants = package_release(ROOT, Path(hf_kernel).absolute())
        values = {"folder": str(folder), "variants": list(variants)}
        return Result(values, [f"package in {folder}: {', '.join(variants)}"])
    folder = Path(output or ROOT / "releases" / "dist" / "wheels").absolute()
    with output_errors(folder):
        make_folders(folder)
        path = build_package(ROOT, folder)
    digest = sha256_file(path)
    return Result({"file": str(path), "sha256": digest}, [f"{digest}  {path}"])


@command("docs")
def docs(
    output: Annotated[str | None, "folder for the site (default: releases/dist/docs)"] = None,
    releases: Annotated[str | None, "instead a page of these releases, with the site in docs/"] = None,
    url: Annotated[str, "with --releases: where the folder will be, for the commands on the page"] = "",
    from_: Annotated[str | None, "with --releases: also list yanked ones, from this place"] = None,
    root: Trust = None,
) -> Report:
    """Build the documentation as a static site; a dead link fails. The first run fetches the pinned tools.

    ./dev docs --output /srv/www/docs
    ./dev docs --releases releases/dist/finished --url https://example.org/aotriton
    """
    from aotforge.deliver.install.install_release import install_errors
    from aotforge.deliver.page import DOCS, make_site
    from aotforge.devtools.docs_site import build_site

    place = Path(releases).absolute() if releases else None
    folder = place / DOCS if place else Path(output or ROOT / "releases" / "dist" / "docs").absolute()
    pages, size = build_site(ROOT, folder, home=HOME)
    values = {"folder": str(folder), "pages": pages, "bytes": size}
    lines = [f"{folder}/index.html: {pages} pages, {size / 1e6:.1f} MB"]
    if not place:
        return Result(values, lines)
    yanked: dict[str, str] = {}
    if from_:
        with install_errors():
            yanked = checked_index(from_, root)[1].index.yanked()
    page = make_site(ROOT, place, base_url=url, yanked=yanked)
    return Result(values, [*lines, str(page)])


@command("bench")
def bench(name: Annotated[str | None, "one benchmark, e.g. pack_size (default: all)"] = None) -> None:
    """Measure speed and size as ratios against peers; see docs/benchmarks.md."""
    stems = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    if name and name not in stems:
        raise UnknownNameError(f"unknown benchmark {name}", hint=suggest(name, stems))
    _run_all([[sys.executable, "-m", f"benchmarks.{stem}"] for stem in ([name] if name else stems)])


@command("ci.matrix")
def matrix(request: CiRequest) -> None:
    """Print the jobs that compile parts of a build, as a JSON list for a GitHub matrix (docs/scale.md)."""
    from json import dumps

    from aotforge.pipeline.parts import matrix

    print_result(dumps(matrix(request), separators=(",", ":")))


def _observer() -> Observer:
    """A line on stderr per stage, with the seconds since the start."""
    start = time.monotonic()
    return LineObserver(lambda text: print_status(f"[{time.monotonic() - start:5.1f} s] {text}"))


@command("containers.lock")
def lock(
    name: Annotated[Sequence[str] | None, "a root filesystem (may be repeated; default: all)"] = None,
    keep: Annotated[bool, "keep the locked files, and record the digest of the result"] = False,
    cache: Cache = None,
) -> Report:
    """Resolve definitions against the current mirrors and package index, and write locks."""
    from aotforge.run.rootfs.definitions import rootfs_names
    from aotforge.run.rootfs.lock import lock_rootfs

    rows = []
    for rootfs in name or rootfs_names(ROOT):
        spec, made = lock_rootfs(
            ROOT,
            rootfs,
            cache=cache_folder(cache),
            environment=os.environ,
            observer=_observer(),
            keep=keep,
        )
        rows.append({"name": rootfs, "digest": made.digest, "file": str(spec.lock_file)})
    return Result(rows, ["  ".join(row.values()) for row in rows])


@command("containers.shell")
def shell(
    name: Annotated[str, "a root filesystem of docker/"],
    run: Annotated[str, "a command line instead of an interactive shell"] = "",
    cache: Cache = None,
) -> None:
    """A shell in a root filesystem by bubblewrap: read-only, without network, with an empty /tmp."""
    from aotforge.run.processes import shell_command
    from aotforge.run.rootfs.cache import find_rootfs

    rootfs = find_rootfs(ROOT, name, cache=cache_folder(cache), environment=os.environ, observer=_observer())
    environment = fixed_environment({"PATH": os.defpath}, "TERM")
    if code := run_child(shell_command(rootfs, run), environment=environment).returncode:
        sys.exit(code)
