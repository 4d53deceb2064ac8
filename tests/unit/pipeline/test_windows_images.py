"""Images for the build for Windows, from tarballs of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ReleaseError
from aotforge.pack.model import ImagePack
from aotforge.pipeline.build_windows import read_packs
from tests.support.hostile import member, tar_bytes, zipped

PACK = "aotriton/lib/aotriton.images/amd-gfx908/"
TARS = {
    f"{PACK}dispatch.aotd": b"data",
    f"{PACK}f.k.aoti": b"images",
    f"{PACK}deeper/x": b"x",
    "aotriton/lib/aotriton.images/x": b"x",
    "aotriton/LICENSE": b"text",
}


def test_packs_of_a_tarball(tmp_path: Path) -> None:
    tar = tar_bytes(*((member(name, len(data)), data) for name, data in TARS.items()))
    (tmp_path / "images.tar.gz").write_bytes(zipped(tar))
    assert read_packs(tmp_path / "images.tar.gz") == (
        ImagePack(name="amd-gfx908", files={"dispatch.aotd": b"data", "f.k.aoti": b"images"}),
    )


def test_a_tarball_without_images(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(zipped(tar_bytes((member("aotriton/LICENSE", 1), b"x"))))
    with pytest.raises(ReleaseError, match="has no images"):
        read_packs(tmp_path / "file")
