from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_pack import write_add
from tests.support.windows import WindowsObjects, missing_mingw, windows_objects
from tests.support.wine import Wine, missing_wine, wine_session


@pytest.fixture(scope="session")
def wine() -> Iterator[Wine]:
    if missing_wine():
        pytest.skip(missing_wine())
    with wine_session() as ready:
        yield ready


@pytest.fixture(scope="session")
def windows() -> WindowsObjects:
    if missing_mingw():
        pytest.skip(missing_mingw())
    return windows_objects()


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with one kernel, in a folder named as the library wants it."""
    folder = tmp_path_factory.mktemp("pack") / "aotriton.images"
    write_add(folder / "amd-gfx908")
    return folder
