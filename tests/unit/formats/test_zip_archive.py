"""Zip files: the bytes depend on names, contents and time alone, and what is read back is what was put in."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ReleaseError
from aotforge.formats.zip_archive import check_zip, digest_members, write_zip

PART = st.text("abcXYZ019._-+", min_size=1, max_size=12).filter(lambda part: not part.endswith("."))
NAME = st.lists(PART, min_size=1, max_size=4).map("/".join)
MEMBERS = st.dictionaries(NAME, st.binary(max_size=300), min_size=1, max_size=8)


@settings(max_examples=25)
@given(MEMBERS, st.integers(0, 5_000_000_000), st.randoms())
def test_order_and_place_do_not_count(members: dict[str, bytes], epoch: int, shuffle: random.Random) -> None:
    names = list(members)
    shuffle.shuffle(names)
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        first, second = Path(one, "a.zip"), Path(other, "b.zip")
        digest = write_zip(first, members, epoch=epoch)
        assert write_zip(second, {name: members[name] for name in names}, epoch=epoch) == digest
        assert first.read_bytes() == second.read_bytes()
        check_zip(first, members)
        with zipfile.ZipFile(first) as file:
            assert file.namelist() == sorted(members)
            assert (
                len({(info.date_time, info.external_attr, bool(info.extra)) for info in file.infolist()}) == 1
            )


@settings(max_examples=25)
@given(MEMBERS, st.data())
def test_other_contents_are_another_file(members: dict[str, bytes], data: st.DataObject) -> None:
    changed = dict(members)
    name = data.draw(st.sampled_from(sorted(members)))
    changed[name] += b"x"
    assert digest_members(changed) != digest_members(members)
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.zip")
        assert write_zip(path, members, epoch=0) != write_zip(path, changed, epoch=0)
        with pytest.raises(ReleaseError, match="differ from what was written"):
            check_zip(path, members)


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    members = {"a": bytes(1000), "b/c": b"text"}
    write_zip(tmp_path / "a.zip", members, epoch=1767225600)
    intact = (tmp_path / "a.zip").read_bytes()
    for cut in (0, 10, len(intact) // 2, len(intact) - 1):
        (tmp_path / "a.zip").write_bytes(intact[:cut])
        with pytest.raises(ReleaseError):
            check_zip(tmp_path / "a.zip", members)


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", "a/..", "a\\b", "c:a", "a.", "a /b", "é", "a\n"])
def test_names_that_windows_does_not_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError):
        write_zip(tmp_path / "a.zip", {name: b""}, epoch=0)
