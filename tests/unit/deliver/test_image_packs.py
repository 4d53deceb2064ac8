"""Packs are found in a pack, a folder of packs, a release folder and a tarball of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.deliver.extract import open_packs
from aotforge.errors import ReleaseError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.pack.writer import write_pack
from tests.unit.pack.samples import sample

FILES = write_pack(*sample(), release="0.0-r1").files
RELEASE = "aotriton-0.11.2b-r1"


def names(path: Path) -> list[str]:
    packs = open_packs(path)
    assert all({name: source.data for name, source in pack.sources.items()} == FILES for pack in packs)
    return [pack.name for pack in packs]


def tarball(folder: Path, kind: str, below: str) -> Path:
    folder.mkdir(exist_ok=True)
    members = {f"aotriton/{below}/{name}": Member(content=data) for name, data in FILES.items()}
    write_tar_gz(folder / f"{RELEASE}-{kind}.tar.gz", dict(members), epoch=0)
    return folder / f"{RELEASE}-{kind}.tar.gz"


def test_every_place_of_packs(tmp_path: Path) -> None:
    release = tmp_path / "release"
    for name in ("amd-gfx908", "amd-gfx90a"):
        packed = tarball(release, f"images-{name}", f"lib/aotriton.images/{name}")
    assert names(release) == ["amd-gfx908", "amd-gfx90a"]
    assert names(packed) == ["amd-gfx90a"]
    for name in ("amd-gfx908", "amd-gfx942"):
        (tmp_path / "aotriton.images" / name).mkdir(parents=True)
        for file, data in FILES.items():
            (tmp_path / "aotriton.images" / name / file).write_bytes(data)
    assert names(tmp_path / "aotriton.images") == ["amd-gfx908", "amd-gfx942"]
    assert names(tmp_path / "aotriton.images" / "amd-gfx942") == ["amd-gfx942"]


def test_what_holds_no_pack_is_named(tmp_path: Path) -> None:
    runtime = tarball(tmp_path / "release", "manylinux_2_28_x86_64-rocm7.0-shared", "lib")
    for path, words in ((runtime, "holds no image pack"), (tmp_path / "none", "No such file")):
        with pytest.raises(ReleaseError, match=words) as caught:
            open_packs(path)
        assert str(path) in caught.value.what and caught.value.hint
