"""Folders of shards: others could put their own library and images into a release that this user makes of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.base import cache_trust
from aotforge.errors import OutputError, ReleaseError, ShardError
from aotforge.pipeline.build_windows import read_packs
from aotforge.pipeline.requests import BuildRequest
from aotforge.pipeline.shards.make_shards import write_shard
from aotforge.pipeline.shards.merge import read_shards
from aotforge.pipeline.shards.shard_file import ArtifactFile, ShardArtifact
from tests.support.families import PROJECT

SHARD = ShardArtifact(manifest={"kind": "images"}, files={"a": ArtifactFile(content=b"x")})


@pytest.fixture
def request_of(tmp_path: Path) -> BuildRequest:
    return BuildRequest(root=PROJECT, output=tmp_path / "parts", cache=tmp_path / "cache", environment={})


@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("place", ["", "part.part.tar", "below", "below/part.part.tar"])
def test_shards_that_others_can_write_are_refused(
    request_of: BuildRequest, tmp_path: Path, place: str, mode: int
) -> None:
    write_shard(request_of, "part", SHARD, "")
    write_shard(replace(request_of, output=tmp_path / "parts" / "below"), "part", SHARD, "")
    assert len(read_shards(tmp_path / "parts")) == 2
    (tmp_path / "parts" / place).chmod(mode)
    if mode == 0o1777 and place == "below":  # others can only add files, whose owner is compared
        assert len(read_shards(tmp_path / "parts")) == 2
        return
    with pytest.raises(ShardError, match=f"is not used: .* has mode {mode:o}"):
        read_shards(tmp_path / "parts")


def test_folders_of_another_user_are_neither_read_nor_written(
    request_of: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard(request_of, "part", SHARD, "")
    monkeypatch.setattr(cache_trust, "_trusted_users", lambda: frozenset({os.geteuid() + 1}))
    with pytest.raises(ShardError, match="belongs to user"):
        read_shards(tmp_path / "parts")
    with pytest.raises(ReleaseError, match="belongs to user"):
        read_packs(tmp_path / "parts")
    with pytest.raises(OutputError, match="belongs to user"):
        write_shard(request_of, "other", SHARD, "")
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["part.part.tar"]


def test_shards_are_not_written_where_others_can_exchange_them(
    request_of: BuildRequest, tmp_path: Path
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts").chmod(0o777)
    with pytest.raises(OutputError, match="others can replace what is in it"):
        write_shard(request_of, "part", SHARD, "")


def test_images_that_others_can_write_are_refused(tmp_path: Path) -> None:
    """Archives of a release folder, or containers of a pack's."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "dispatch.aotd").write_bytes(b"data")
    (tmp_path / "pack" / "dispatch.aotd").chmod(0o666)
    with pytest.raises(ReleaseError, match=r"dispatch\.aotd is not used: .* has mode 666"):
        read_packs(tmp_path / "pack")
