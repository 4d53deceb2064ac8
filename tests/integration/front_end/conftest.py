"""One library with images of this processor for all tests of aotforge_flash."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.targets.backends import unexecutable
from tests.support.front_end import write_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loaded, with images for float16, caches of float16 and int8."""
    if reason := unexecutable("cpu-x86-64-v3"):
        pytest.skip(reason)
    import aotforge_flash

    path = write_library(tmp_path_factory.mktemp("library"), caches=("fp16", "i8"))
    aotforge_flash.load(path)
    return path
