"""A part's file: equal parts are equal bytes, and nothing but those bytes is ever read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import ShardError
from aotforge.pipeline.shards.shard_file import ArtifactFile, ShardArtifact, decode, encode

HERE = Path("some.part.tar")
PART = ShardArtifact(
    manifest={"kind": "images", "n": 1},
    files={
        "lib/a.so.1": ArtifactFile(content=b"\x7fELF" * 40, executable=True),
        "lib/a.so": ArtifactFile(link="a.so.1"),
        "images-1/ab/abc": ArtifactFile(content=b"x"),
        "empty": ArtifactFile(),
    },
)
names = (
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda n: n != "part.json")
)
contents = st.builds(ArtifactFile, content=st.binary(max_size=700), executable=st.booleans())


def _is_a_tree(files: dict[str, ArtifactFile]) -> bool:
    """No file is the folder of another."""
    return not any(other.startswith(f"{name}/") for name in files for other in files)


@given(st.dictionaries(names, contents, max_size=5).filter(_is_a_tree))
def test_parts_round_trip_and_order_does_not_matter(files: dict[str, ArtifactFile]) -> None:
    part = ShardArtifact(manifest={"kind": "images", "shard": {"number": 1}}, files=files)
    data = encode(part)
    assert decode(data, HERE) == part
    assert encode(ShardArtifact(manifest=part.manifest, files=dict(reversed(files.items())))) == data


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    good = bytearray(encode(PART))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ShardError, match=r"some\.part\.tar"):
        decode(bytes(good), HERE)


@given(st.data())
def test_any_lost_or_added_end_is_found(data: st.DataObject) -> None:
    good = encode(PART)
    cut = data.draw(st.integers(0, len(good) - 1))
    for bad in (good[:cut], good + b"\0" * (1 + cut)):
        with pytest.raises(ShardError, match=r"some\.part\.tar"):
            decode(bad, HERE)


@pytest.mark.parametrize("name", ["../up", "/abs", "a/../../b", "a/./b"])
def test_members_stay_below_their_folder(name: str) -> None:
    with pytest.raises(
        ShardError, match=r"is damaged: .* (is outside its folder|is an absolute path|is not a plain path)"
    ):
        decode(encode(ShardArtifact(manifest={}, files={name: ArtifactFile(content=b"x")})), HERE)


@pytest.mark.parametrize("target", ["..", "/etc/passwd", "../x", "below/x"])
def test_links_stay_in_their_folder(target: str) -> None:
    with pytest.raises(ShardError, match=r"is damaged: .* link"):
        decode(encode(ShardArtifact(manifest={}, files={"a": ArtifactFile(link=target)})), HERE)


def test_another_format_is_reported() -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        info = tarfile.TarInfo("part.json")
        text = b'{"format":2}'
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    with pytest.raises(ShardError, match="format 2, this version reads format 1"):
        decode(sink.getvalue(), HERE)
