"""Options of a build that go together, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from aotforge.errors import AotforgeError, UnknownNameError, UnsupportedError
from aotforge.pipeline.build_windows import check_platform

ASKED: list[tuple[dict[str, str | None], type[AotforgeError] | None]] = [
    ({"platform": "linux", "arch": "gfx908"}, None),
    ({"platform": "windows"}, None),
    ({"platform": "windows", "images": "x"}, None),
    ({"platform": "linux"}, UnsupportedError),
    ({"platform": "linux", "arch": "gfx908", "images": "x"}, UnsupportedError),
    ({"platform": "windows", "arch": "gfx908"}, UnsupportedError),
    ({"platform": "windows", "profile": "core"}, UnsupportedError),
    ({"platform": "window"}, UnknownNameError),
]


@pytest.mark.parametrize(("options", "error"), ASKED)
def test_options_of_a_build(options: dict[str, str | None], error: type[AotforgeError] | None) -> None:
    wanted: dict[str, Any] = {"arch": None, "profile": None, "images": None} | options
    platform = wanted.pop("platform")
    if error is None:
        check_platform(platform, **wanted)
        return
    with pytest.raises(error) as caught:
        check_platform(platform, **wanted)
    assert caught.value.hint
