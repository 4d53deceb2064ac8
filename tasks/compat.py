"""Tasks of compatibility: the PyTorch matrix, and the checks of a candidate release."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from tasks.door import JSON, ROOT, cache_folder, door, job_count, say

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
    from aotforge.compat.html import matrix_page  # noqa: PLC0415
    from aotforge.compat.matrix import load_matrix  # noqa: PLC0415
    from aotforge.compat.show import matrix_fields, matrix_text  # noqa: PLC0415
    from aotforge.files import write_atomic  # noqa: PLC0415

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

    from aotforge.compat.matrix import load_matrix  # noqa: PLC0415
    from aotforge.compat.which import advice_text, advise  # noqa: PLC0415

    advice = advise(
        load_matrix(ROOT), ROOT, pytorch=pytorch, arch=arch, rocm=rocm, platform=platform, fork=fork
    )
    if json:
        _json(asdict(advice))
    else:
        say(advice_text(advice))


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
    from aotforge.compat.matrix import load_matrix  # noqa: PLC0415
    from aotforge.compat.show import explain_fields, explain_row  # noqa: PLC0415

    compat = load_matrix(ROOT)
    row = compat.find(pytorch, fork=fork)
    release = compat.release_named(aotriton) if aotriton else None
    if json:
        _json(explain_fields(compat, row, release))
    else:
        say(explain_row(compat, row, release))


TASKS = (
    ("compat", "show", show),
    ("compat", "which", which),
    ("compat", "explain", explain),
)
