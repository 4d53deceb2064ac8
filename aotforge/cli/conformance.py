"""Tasks of compatibility: the PyTorch matrix, and the checks of a candidate release."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from aotforge.cli.command import JSON, ROOT, cache_folder, door, job_count, say

_FORK = "ROCm/pytorch instead of pytorch/pytorch"


def _json(value: object) -> None:
    import json  # noqa: PLC0415

    say(json.dumps(value, indent=1))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@task(help={"json": JSON, "html": "write a static page to this file"})
@door
def show(c: Context, json: bool = False, html: str | None = None) -> None:
    """Which AOTriton each PyTorch takes, and which of them ours serves."""
    from aotforge.base.files import write_atomic  # noqa: PLC0415
    from aotforge.conformance.matrix import load_matrix  # noqa: PLC0415
    from aotforge.conformance.matrix_show import (  # noqa: PLC0415
        matrix_fields,
        matrix_page,
        matrix_text,
    )

    compat = load_matrix(ROOT)
    if html:
        path = Path(html).absolute()
        write_atomic(path, matrix_page(compat).encode())
        if not json:
            say(f"{path}")
    if json:
        _json(matrix_fields(compat))
    elif not html:
        say(matrix_text(compat, colour=_colour()))


@task(
    help={
        "pytorch": "version, e.g. 2.9, or main",
        "arch": "chip, e.g. gfx908",
        "rocm": "ROCm version, e.g. 7.0",
        "platform": "linux (default), windows, or a tag such as manylinux_2_28",
        "fork": _FORK,
        "json": JSON,
    }
)
@door
def which(
    c: Context,
    pytorch: str,
    arch: str,
    rocm: str = "",
    platform: str = "linux",
    fork: bool = False,
    json: bool = False,
) -> None:
    """What to install for a PyTorch and a chip, and how."""
    from dataclasses import asdict  # noqa: PLC0415

    from aotforge.conformance.matrix import load_matrix  # noqa: PLC0415
    from aotforge.conformance.recommend import recommend, recommendation_text  # noqa: PLC0415

    recommendation = recommend(
        load_matrix(ROOT), ROOT, pytorch=pytorch, arch=arch, rocm=rocm, platform=platform, fork=fork
    )
    if json:
        _json(asdict(recommendation))
    else:
        say(recommendation_text(recommendation))


@task(
    help={
        "pytorch": "version, e.g. 2.9, or main",
        "aotriton": "an AOTriton release, e.g. 0.10b: only what is known of the pair",
        "fork": _FORK,
        "json": JSON,
    }
)
@door
def explain(c: Context, pytorch: str, aotriton: str = "", fork: bool = False, json: bool = False) -> None:
    """All that is known of a row of the matrix, or of a pair, with the evidence of each statement."""
    from aotforge.conformance.matrix import load_matrix  # noqa: PLC0415
    from aotforge.conformance.matrix_show import explain_fields, explain_row  # noqa: PLC0415

    compat = load_matrix(ROOT)
    row = compat.find(pytorch, fork=fork)
    release = compat.release_named(aotriton) if aotriton else None
    if json:
        _json(explain_fields(compat, row, release))
    else:
        say(explain_row(compat, row, release))


@task(
    help={
        "release": "a release folder (default: the newest in releases/dist)",
        "only": "some checks instead of all, e.g. calls,layout",
        "development": "accept a library below the promised platform, and say so",
        "jobs": "parts at the same time",
        "cache": "cache folder",
        "json": JSON,
    },
)
@door
def check(
    c: Context,
    release: str = "",
    only: str = "",
    development: bool = False,
    jobs: int = 0,
    cache: str | None = None,
    json: bool = False,
) -> None:
    """Prove the matrix on a candidate release: every violation, then exit code 32."""
    from aotforge.base.progress import progress  # noqa: PLC0415
    from aotforge.conformance.check_release import check_release, newest_release  # noqa: PLC0415
    from aotforge.conformance.findings import report_fields, report_lines, require_ok  # noqa: PLC0415
    from aotforge.errors import CompatError  # noqa: PLC0415

    chosen = Path(release).absolute() if release else newest_release(ROOT / "releases" / "dist")
    with progress("checking", quiet=json) as line:
        report = check_release(
            chosen,
            checkout=ROOT,
            cache=cache_folder(cache),
            jobs=job_count(jobs),
            development=development,
            only=[name for name in only.split(",") if name],
            on_part=line.update,
        )
    if json:
        _json(report_fields(report))
        if not report.ok:  # the one JSON text has the error already
            raise Exit(code=CompatError.exit_code)
        return
    say("\n".join(report_lines(report, colour=_colour())))
    require_ok(report)


@task(positional=["folder"], help={"folder": "a release folder"})
@door
def baseline(c: Context, folder: str) -> None:
    """Write compat/abi of a release that was published: what later point releases are compared with."""
    from aotforge.conformance.check_release import write_baselines  # noqa: PLC0415

    for path in write_baselines(Path(folder).absolute(), checkout=ROOT):
        say(f"{path}")


TASKS = (
    ("", "check", check),
    ("compat", "baseline", baseline),
    ("compat", "show", show),
    ("compat", "which", which),
    ("compat", "explain", explain),
)
