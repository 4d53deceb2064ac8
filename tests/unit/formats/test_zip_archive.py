"""Zip files: the bytes depend on names, contents and time alone, and what is read back is what was put in."""

from __future__ import annotations

import random
import stat
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ReleaseError
from aotforge.formats import zip_archive
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.formats.wheel import WheelName, read_metadata, read_wheel, write_wheel
from aotforge.formats.zip_archive import digest_members, write_zip, zip_members

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


@pytest.mark.parametrize(
    ("epoch", "moment"),
    [
        (0, (1980, 1, 1, 0, 0, 0)),
        (1767225600, (2026, 1, 1, 0, 0, 0)),
        (4354819200, (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_members_have_one_time_mode_and_system(tmp_path: Path, epoch: int, moment: tuple[int, ...]) -> None:
    write_zip(tmp_path / "a.zip", {"a": b"1" * 99}, epoch=epoch)
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        (info,) = file.infolist()
    assert (info.date_time, info.create_system, info.external_attr) == (moment, 3, 0o100644 << 16)
    assert info.compress_type == zipfile.ZIP_DEFLATED


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", "a/..", "a\\b", "c:a", "a.", "a /b", "é", "a\n"])
def test_names_that_windows_does_not_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError):
        write_zip(tmp_path / "a.zip", {name: b""}, epoch=0)


def read(path: Path) -> dict[str, bytes]:
    return {info.filename: data for info, data in zip_members(path)}


@settings(max_examples=25)
@given(MEMBERS)
def test_what_is_written_is_read(members: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        write_zip(Path(folder, "a.zip"), members, epoch=0)
        assert read(Path(folder, "a.zip")) == members


def at(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Other bytes in the first header: its method is at 8, CRC at 14, sizes at 18 and 22, the length of extra
    fields at 28."""
    return lambda data: data[:offset] + new + data[offset + len(new) :]


def in_directory(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Other bytes in the last entry of the directory: its flags are at 8, lengths of name, extra fields and
    comment from 28 on."""
    return lambda data: at(data.rindex(b"PK\1\2") + offset, new)(data)


def plain(name: str) -> zipfile.ZipInfo:
    """With the attributes of a release's members."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o100644 << 16
    return info


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFDIR])
def test_members_that_other_programs_make_links_or_devices_of(tmp_path: Path, kind: int) -> None:
    """CMake unpacks a release by libarchive: a file below a link is then written elsewhere."""
    info, path = plain("include/l"), tmp_path / "a.zip"
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, b"../../elsewhere")
    with pytest.raises(zipfile.BadZipFile, match="'include/l' is not a regular file"):
        read(path)


def test_content_that_its_header_does_not_have(tmp_path: Path) -> None:
    """A CRC or a size that is wrong in both headers."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(plain("a"), b"data")
    data = path.read_bytes()
    assert read(path) == {"a": b"data"}
    for local_at, entry_at in ((14, 16), (22, 24)):
        path.write_bytes(in_directory(entry_at, b"\5")(at(local_at, b"\5")(data)))
        with pytest.raises(zipfile.BadZipFile, match="'a'"):
            read(path)


@pytest.mark.parametrize("name", ["é", "a/../../b", "/a", "a\\b", "c:a", "a/"])
def test_names_that_no_release_has(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"data")
    with pytest.raises(zipfile.BadZipFile, match="is not a portable name"):
        read(path)


@pytest.mark.parametrize("bound", ["UNPACKED_LIMIT", "MEMBERS_LIMIT"])
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    path = tmp_path / "a.zip"
    write_zip(path, {"a": bytes(2), "b": b""}, epoch=0)
    monkeypatch.setattr(zip_archive, bound, 2)
    assert len(read(path)) == 2
    monkeypatch.setattr(zip_archive, bound, 1)
    with pytest.raises(zipfile.BadZipFile, match="more than"):
        read(path)


def test_only_the_metadata_of_a_wheel_are_read(tmp_path: Path) -> None:
    name = WheelName(name="aotforge-attention", version="1.0")
    path = write_wheel(tmp_path, name, {"a": b"one" * 99}, {"METADATA": b"Name: x\n"}, epoch=0)
    damaged = bytearray(path.read_bytes())
    damaged[31] ^= 0xFF  # in the data of `a`
    path.write_bytes(damaged)
    assert read_metadata(path, name) == b"Name: x\n"
    assert read_metadata(path, WheelName(name="aotforge-attention", version="2.0")) == b""
    with pytest.raises(ReleaseError, match="is not a valid wheel"):
        read_wheel(path)
    place = damaged.index(b"PK\1\2")
    damaged[place + 9], damaged[place + 46] = 8, 0xFF  # a name that is not UTF-8
    path.write_bytes(damaged)
    with pytest.raises(ReleaseError, match="is not a valid wheel"):
        read_metadata(path, name)


def test_content_that_is_larger_than_its_header_has(tmp_path: Path) -> None:
    """A bomb that states a small size is not unpacked."""
    path = tmp_path / "a.zip"
    write_zip(path, {"a": bytes(64 << 20)}, epoch=0)
    data = path.read_bytes()
    path.write_bytes(in_directory(24, b"\5\0\0\0")(at(22, b"\5\0\0\0")(data)))
    tracemalloc.start()
    try:
        with pytest.raises(zipfile.BadZipFile, match="'a'"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_damaged_and_encrypted_members(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    write_zip(path, {"a": random.Random(1).randbytes(99)}, epoch=0)
    data = path.read_bytes()
    for change in (in_directory(42, b"\xff"), in_directory(8, b"\1"), at(40, b"\xff")):
        path.write_bytes(change(data))
        with pytest.raises(zipfile.BadZipFile):
            read(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_compression_is_not_unpacked(method: int, tmp_path: Path) -> None:
    """Python unpacks these in pieces without a limit: 2 kB took 6 GB."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("member", bytes(64 << 20))
    data = bytearray(path.read_bytes())
    for at in (22, data.rindex(b"PK\1\2") + 24):  # the size in both headers
        data[at : at + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(zipfile.BadZipFile, match="neither stored nor deflated"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_reads_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, limit=5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        read_regular(path, limit=4)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", b"\xff", "", "nan"])
def test_texts_that_are_not_json(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting|codec|column"):
        parse_json(text)
