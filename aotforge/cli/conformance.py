"""Tasks of compatibility: the PyTorch matrix, and the checks of a candidate release."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from aotforge.cli.command import (
    ROOT,
    Cache,
    Json,
    ProgressKind,
    cache_folder,
    cli_command,
    job_count,
    print_either,
    progress_events,
)

Fork = Annotated[bool, "ROCm/pytorch instead of pytorch/pytorch"]
Version = Annotated[
    str | None, "API level of our release, e.g. 0.13b (default: that of manifests/release.yaml)"
]
PyTorch = Annotated[str, "version, e.g. 2.9, or main"]


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


@cli_command("compat.show")
def show(
    json: Json = False,
    version: Version = None,
    html: Annotated[str | None, "write a static page to this file"] = None,
) -> None:
    """The AOTriton release that each PyTorch takes, and those that this project serves."""
    from aotforge.base.files import write_atomic
    from aotforge.conformance.matrix import load_matrix
    from aotforge.conformance.matrix_show import matrix_fields, matrix_page, matrix_text

    compat = load_matrix(ROOT, version)
    lines = [] if json else [matrix_text(compat, colour=_colour())]
    if html:
        path = Path(html).absolute()
        write_atomic(path, matrix_page(compat).encode())
        lines = [f"{path}"]
    print_either(matrix_fields(compat), lines, json=json)


@cli_command("compat.which")
def which(
    pytorch: PyTorch,
    arch: Annotated[str, "arch or product, e.g. gfx908 or MI100"],
    rocm: Annotated[str, "ROCm version, e.g. 7.0"] = "",
    platform: Annotated[str, "linux (default), windows, or a tag such as manylinux_2_28"] = "linux",
    fork: Fork = False,
    version: Version = None,
    json: Json = False,
) -> None:
    """What to install for a PyTorch and an arch, and how."""
    from aotforge.conformance.matrix import load_matrix, recommend
    from aotforge.conformance.matrix_show import recommendation_text

    found = recommend(
        load_matrix(ROOT, version),
        ROOT,
        pytorch=pytorch,
        arch=arch,
        rocm=rocm,
        platform=platform,
        fork=fork,
        any_level=version is None,
    )
    print_either(asdict(found), [recommendation_text(found)], json=json)


@cli_command("compat.explain")
def explain(
    pytorch: PyTorch,
    aotriton: Annotated[str, "an AOTriton release, e.g. 0.10b: only what is known of the pair"] = "",
    fork: Fork = False,
    version: Version = None,
    json: Json = False,
) -> None:
    """All that is known of a row of the matrix, or of a pair, with the evidence of each statement."""
    from aotforge.conformance.matrix import load_matrix
    from aotforge.conformance.matrix_show import explain_fields, explain_row

    compat = load_matrix(ROOT, version)
    row = compat.find(pytorch, fork=fork)
    release = compat.release_named(aotriton) if aotriton else None
    print_either(explain_fields(compat, row, release), [explain_row(compat, row, release)], json=json)


@cli_command("check")
def check(
    release: Annotated[str, "a release folder (default: the newest in releases/dist)"] = "",
    only: Annotated[str, "some checks instead of all, e.g. calls,layout"] = "",
    development: Annotated[bool, "accept a library below the promised platform, and report it"] = False,
    jobs: Annotated[int | None, "parts at the same time"] = None,
    cache: Cache = None,
    json: Json = False,
    progress: ProgressKind = "auto",
) -> None:
    """Check a candidate release, which executes its library in a sandbox: prints every violation, then exit code 32."""
    from aotforge.base import progress as display
    from aotforge.conformance.candidate import newest_release
    from aotforge.conformance.check_release import check_release
    from aotforge.conformance.findings import report_fields, report_lines, require_ok
    from aotforge.errors import CompatError

    chosen = Path(release).absolute() if release else newest_release(ROOT / "releases" / "dist")
    with display.progress("checking", quiet=json, events=progress_events(progress)) as line:
        report = check_release(
            chosen,
            checkout=ROOT,
            cache=cache_folder(cache),
            jobs=job_count(jobs),
            development=development,
            only=[name for name in only.split(",") if name],
            on_part=line.update,
        )
    print_either(report_fields(report), report_lines(report, colour=_colour()), json=json)
    if json and not report.ok:  # the JSON text has the error already
        sys.exit(CompatError.exit_code)
    require_ok(report)
