from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.attention import spy_pack
from tests.support.readers import Readers
from tests.support.runtime import Objects, build_objects
from tests.support.small_pack import write


@pytest.fixture(scope="session")
def objects() -> Objects:
    return build_objects()


@pytest.fixture
def readers(objects: Objects, tmp_path: Path) -> Iterator[Readers]:
    """The library's readers of packs, as a program."""
    started = Readers(objects.program("readers"), tmp_path)
    yield started
    started.close()


@pytest.fixture(scope="session")
def spy_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packs with one pack of spy kernels for gfx908."""
    folder = tmp_path_factory.mktemp("images")
    write(spy_pack(), folder / "amd-gfx908")
    return folder
