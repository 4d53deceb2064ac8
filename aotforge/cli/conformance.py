"""Tasks of compatibility: the PyTorch matrix, and the checks of a candidate release."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from aotforge.base.progress import Report
from aotforge.cli.deliver import release_folder
from aotforge.cli.flags import command
from aotforge.cli.output import Output, Result, use_color
from aotforge.cli.settings import ROOT
from aotforge.cli.values import Cache, Key, cache_folder, job_count, names
from aotforge.errors import UsageError


@command("compat")
def compat(
    pytorch: Annotated[str | None, "version, e.g. 2.9, or main: only this row"] = None,
    arch: Annotated[str | None, "with --pytorch: what to install for this arch or product, and how"] = None,
    rocm: Annotated[str, "with --arch: ROCm version, e.g. 7.0"] = "",
    platform: Annotated[str, "with --arch: linux, windows, or a tag such as manylinux_2_28"] = "linux",
    aotriton: Annotated[str | None, "with --pytorch: the pair with this release, e.g. 0.10b"] = None,
    pins: Annotated[
        str | None, "with --pytorch: CMake lines that fetch this release folder, or `newest`"
    ] = None,
    url: Annotated[
        str, "with --pins: where the release will be, without its name"
    ] = "http://127.0.0.1:8080/",
    prefix: Annotated[bool, "with --pins: instead by AOTRITON_INSTALLED_PREFIX"] = False,
    fork: Annotated[bool, "ROCm/pytorch instead of pytorch/pytorch"] = False,
    version: Annotated[str | None, "API level of our release (default: manifests/release.yaml)"] = None,
    html: Annotated[str | None, "write the matrix as a static page to this file"] = None,
) -> Report:
    """The AOTriton that each PyTorch takes; for one PyTorch all evidence; with --arch what to install.

    ./dev compat --pytorch 2.9 --arch gfx908
    ./dev compat --pytorch main --aotriton 0.11.2b
    ./dev compat --pytorch 2.11 --pins releases/dist/finished/0.11.2b-r1
    """
    from aotforge.base.files import write_atomic
    from aotforge.conformance.matrix import levels_for, load_matrix, recommend
    from aotforge.conformance.matrix_show import (
        explain_fields,
        explain_row,
        matrix_fields,
        matrix_page,
        matrix_text,
        recommendation_text,
    )
    from aotforge.deliver.pytorch.pins import pins_for_pytorch, prefix_text

    if not pytorch and (arch or aotriton or pins):
        raise UsageError(
            "--arch, --aotriton and --pins need --pytorch", hint="./dev compat --pytorch 2.9 --arch gfx908"
        )
    if pytorch and pins:
        folder = release_folder(
            "" if pins == "newest" else pins, lambda: levels_for(ROOT, pytorch, fork=fork)
        )
        if prefix:
            text = prefix_text(folder, url)
        else:
            text = pins_for_pytorch(ROOT, folder, pytorch=pytorch, fork=fork, url=url)
        return Result({"cmake": text}, [text.rstrip("\n")])
    matrix = load_matrix(ROOT, version)
    if pytorch and arch:
        recommendation = recommend(
            matrix,
            ROOT,
            pytorch=pytorch,
            arch=arch,
            rocm=rocm,
            platform=platform,
            fork=fork,
            any_level=version is None,
        )
        return Result(asdict(recommendation), [recommendation_text(recommendation)])
    if pytorch:
        row = matrix.find(pytorch, fork=fork)
        release = matrix.release_named(aotriton) if aotriton else None
        return Result(explain_fields(matrix, row, release), [explain_row(matrix, row, release)])
    if html:
        write_atomic(Path(html).absolute(), matrix_page(matrix).encode())
    shown = f"{Path(html).absolute()}" if html else matrix_text(matrix, colour=use_color())
    return Result(matrix_fields(matrix), [shown])


@command("check")
def check(
    output: Output,
    release: Annotated[str | None, "a release folder (default: the newest in releases/dist)"] = None,
    only: Annotated[str, "some checks instead of all, e.g. calls,layout"] = "",
    files: Annotated[bool, "only its files against SHA256SUMS, and with --key the signatures"] = False,
    key: Key = None,
    development: Annotated[bool, "accept a library below the promised platform, and report it"] = False,
    jobs: Annotated[int | None, "parts at the same time"] = None,
    cache: Cache = None,
) -> Report:
    """Check a candidate release, which executes its library in a sandbox, and print every violation.

    ./dev check --release releases/dist/0.11.2b-r1 --only calls,layout
    ./dev check --release releases/dist/finished/0.11.2b-r1 --files --key key.pub
    """
    from aotforge.conformance.candidate import newest_release
    from aotforge.conformance.check_release import check_release
    from aotforge.conformance.findings import report_fields, report_lines, require_ok
    from aotforge.release.finalize import check_finalized_release
    from aotforge.release.signing import load_public_key

    chosen = Path(release).absolute() if release else newest_release(ROOT / "releases" / "dist")
    public = load_public_key(Path(key)) if key else None
    if files:
        listed = check_finalized_release(chosen, public).sums
        signed = ", signatures are valid" if key else "; signatures were not checked: no --key"
        return Result({"files": list(listed)}, [f"{len(listed)} files are as listed{signed}"])
    with output.progress_of("checking") as line:
        report = check_release(
            chosen,
            checkout=ROOT,
            cache=cache_folder(cache),
            jobs=job_count(jobs),
            development=development,
            only=names(only),
            on_part=line.update,
        )
    lines = report_lines(report, colour=use_color())
    return Result(report_fields(report), lines, partial(require_ok, report))
