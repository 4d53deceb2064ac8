"""Options of a build that fit together, and those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aotforge.errors import AotforgeError, ShardError, UnknownNameError, UnsupportedError
from aotforge.pipeline.build_command import check_options
from aotforge.pipeline.requests import BuildRequest

ARCH, IMAGES = ("gfx908",), (Path("x"),)
OPTIONS: list[tuple[dict[str, Any], type[AotforgeError] | None]] = [
    ({"platform": "linux", "archs": ARCH}, None),
    ({"platform": "windows"}, None),
    ({"platform": "windows", "images": IMAGES}, None),
    ({"platform": "linux", "archs": ARCH, "shard": "1/2"}, None),
    ({"platform": "linux", "archs": ARCH, "gather": Path("x")}, None),
    ({"platform": "linux"}, UnsupportedError),
    ({"platform": "linux", "archs": ARCH, "images": IMAGES}, UnsupportedError),
    ({"platform": "windows", "archs": ARCH}, UnsupportedError),
    ({"platform": "windows", "profile": "core"}, UnsupportedError),
    ({"platform": "window"}, UnknownNameError),
    ({"platform": "linux", "archs": ARCH, "cache_from": "x"}, None),
    ({"platform": "windows", "cache_from": "x"}, UnsupportedError),
    ({"platform": "linux", "archs": ARCH, "gather": Path("x"), "cache_to": "x"}, UnsupportedError),
    ({"platform": "linux", "archs": ARCH, "shard": "1/2", "gather": Path("x")}, ShardError),
    ({"archs": ARCH, "format": "hf-kernel"}, None),
    ({"archs": ARCH, "format": "hf-kernel", "gather": Path("x")}, None),
    ({"archs": ARCH, "format": "hf-kernel", "shard": "1/2"}, UnsupportedError),
    ({"platform": "windows", "format": "hf-kernel"}, UnsupportedError),
    ({"archs": ARCH, "format": "hf_kernel"}, UnknownNameError),
]


@pytest.mark.parametrize(("options", "error"), OPTIONS)
def test_options_of_a_build(options: dict[str, Any], error: type[AotforgeError] | None) -> None:
    request = BuildRequest(root=Path(), cache=Path(), **options)
    if error is None:
        check_options(request)
        return
    with pytest.raises(error) as caught:
        check_options(request)
    assert caught.value.hint
