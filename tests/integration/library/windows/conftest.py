from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.small_pack import Choice, Kernel, SmallPack, write
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
    image = fake_hsaco("gfx908", [FakeKernel(symbol="add", types=["ptr", "ptr", "ptr", "i32"])], bytes(20000))
    choice = Choice(image=image, symbol="add", grid=((("n", 1024),), (), ()))
    values = [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", "i32")]
    kernel = Kernel(
        name="e.add",
        operator="add",
        parameters=[(t, v) for v, t in values],
        functionals={("gfx908", ()): [choice]},
    )
    folder = tmp_path_factory.mktemp("pack") / "aotriton.images"
    complete = SmallPack(
        archs=["gfx908"], operators={"add": values}, kernels=[kernel], dictionary=image[:300]
    )
    write(complete, folder / "amd-gfx908")
    return folder
