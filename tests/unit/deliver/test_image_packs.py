"""Packs are found in a pack, a folder of packs, a release folder and a tarball of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.deliver.extract import image_packs
from aotforge.errors import ReleaseError
from tests.support.publishing import make_release


def names(path: Path) -> list[str]:
    with image_packs(path) as packs:
        assert all((pack / "__signature__").is_file() for pack in packs)
        return [pack.name for pack in packs]


def test_every_place_of_packs(tmp_path: Path) -> None:
    release = make_release(tmp_path / "release")
    assert names(release) == ["amd-gfx908", "amd-gfx90a"]
    (tarball,) = release.glob("*-images-amd-gfx90a.tar.gz")
    assert names(tarball) == ["amd-gfx90a"]
    for name in ("amd-gfx908", "amd-gfx942"):
        (tmp_path / "aotriton.images" / name).mkdir(parents=True)
        (tmp_path / "aotriton.images" / name / "__signature__").touch()
    assert names(tmp_path / "aotriton.images") == ["amd-gfx908", "amd-gfx942"]
    assert names(tmp_path / "aotriton.images" / "amd-gfx942") == ["amd-gfx942"]


def test_what_holds_no_pack_is_named(tmp_path: Path) -> None:
    release = make_release(tmp_path / "release")
    (runtime, *_) = release.glob("*-shared.tar.gz")
    for path, words in ((runtime, "holds no image pack"), (tmp_path / "none", "does not exist")):
        with pytest.raises(ReleaseError, match=words) as caught:
            names(path)
        assert str(path) in caught.value.what and caught.value.hint
