"""Zip files: the bytes depend on names, contents and time alone, and what is read back is what was put in."""

from __future__ import annotations

import random
import stat
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ReleaseError
from aotforge.formats import zip_archive
from aotforge.formats.wheel import WheelName, read_metadata, read_wheel, write_wheel
from aotforge.formats.zip_archive import check_zip, digest_members, open_zip, read_member, write_zip

PART = st.text("abcXYZ019._-+", min_size=1, max_size=12).filter(lambda part: not part.endswith("."))
NAME = st.lists(PART, min_size=1, max_size=4).map("/".join)
MEMBERS = st.dictionaries(NAME, st.binary(max_size=300), min_size=1, max_size=8).filter(
    lambda members: not zip_archive._names_clash(members)
)


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


def test_a_member_that_occurs_twice_is_noticed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("a", b"1")
        file.writestr("a", b"1")
    with pytest.raises(ReleaseError, match="differ from what was written"):
        check_zip(tmp_path / "a.zip", {"a": b"1"})


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


def read(path: Path) -> dict[str, bytes]:
    with open_zip(path) as archive:
        return {info.filename: read_member(archive, info) for info in archive.infolist()}


@settings(max_examples=25)
@given(MEMBERS)
def test_what_is_written_is_read(members: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        write_zip(Path(folder, "a.zip"), members, epoch=0)
        assert read(Path(folder, "a.zip")) == members


def ends(data: bytes) -> tuple[int, int]:
    """Offsets of the directory and of the record at the end."""
    end = data.rindex(b"PK\5\6")
    return struct.unpack_from("<I", data, end + 16)[0], end


def moved(data: bytes, start: int, inserted: bytes) -> bytes:
    """With bytes before the directory, whose record names its new place."""
    directory, end = ends(data)
    record = bytearray(data[end:])
    struct.pack_into("<I", record, 16, directory + len(inserted))
    return data[:start] + inserted + data[start:end] + bytes(record)


def local(name: bytes, data: bytes) -> bytes:
    fields = (20, 0, 0, 0, 0x21, zlib.crc32(data), len(data), len(data), len(name), 0)
    return struct.pack("<4s5H3I2H", b"PK\3\4", *fields) + name + data


def hidden(data: bytes) -> bytes:
    """A member that only its own header names: programs that unpack a stream make a file of it."""
    return moved(data, ends(data)[0], local(b"evil.pth", b"import os"))


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """The first occurrence, which is in a header before a member."""
    assert len(old) == len(new)
    return lambda data: data.replace(old, new, 1)


def at(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Other bytes in the first header: its method is at 8, CRC at 14, sizes at 18 and 22, the length of extra fields at 28."""
    return lambda data: data[:offset] + new + data[offset + len(new) :]


def flagged(data: bytes) -> bytes:
    """A flag of the first member in both headers."""
    return at(data.index(b"PK\1\2") + 8, b"\2")(at(6, b"\2")(data))


def in_record(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Other bytes in the record at the end: numbers of disks are at 4 and 6, of entries at 8 and 10."""
    return lambda data: at(ends(data)[1] + offset, new)(data)


def shifted(data: bytes) -> bytes:
    """All offsets five bytes too large: `zipfile` takes five bytes for missing before the archive."""
    directory, end = ends(data)
    changed = bytearray(data)
    for place in (directory + 42, data.index(b"PK\1\2", directory + 1) + 42, end + 16):
        struct.pack_into("<I", changed, place, struct.unpack_from("<I", data, place)[0] + 5)
    return bytes(changed)


def in_directory(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Other bytes in the last entry of the directory: its flags are at 8, lengths of name, extra fields and comment from 28 on."""
    return lambda data: at(data.rindex(b"PK\1\2") + offset, new)(data)


def longer(data: bytes) -> bytes:
    """The last member's size in both headers covers another member behind its deflated data."""
    directory = ends(data)[0]
    extra, start = local(b"evil.pth", b"import os"), data.index(b"PK\3\4", 1)
    changed = bytearray(moved(data, directory, extra))
    entry = changed.index(b"PK\1\2", directory + len(extra) + 1)
    for place in (start + 18, entry + 20):
        struct.pack_into("<I", changed, place, struct.unpack_from("<I", changed, place)[0] + len(extra))
    return bytes(changed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hidden, "after its members are bytes of none"),
        (lambda data: b"#!/bin/sh\n" + data, "before 'a' are bytes of no member"),
        (lambda data: data + b"x", "not a zip file|bytes of none"),
        (lambda data: data[:-2] + b"\2\0PK", "bytes of none"),
        (lambda data: data[: ends(data)[1]] + b"gap!" + data[ends(data)[1] :], "bytes of no|magic number"),
        (replaced(b"\1\0\0\0a", b"\1\0\0\0c"), "the header of 'a' is not of the form"),
        (replaced(b"PK\3\4\x14\0\0\0", b"PK\3\4\x14\0\x08\0"), "the header of 'a' is not of the form"),
        *[
            (at(offset, new), "the header of 'a' is not of the form")
            for offset, new in (
                (3, b"\5"),
                (4, b"\4"),
                (8, b"\0"),
                (14, b"\0\0"),
                (18, b"\0"),
                (22, b"\0"),
                (28, b"\1"),
            )
        ],
        (flagged, "the header of 'a' is not of the form"),
        *[
            (in_directory(offset, b"\4"), "the entry of 'b' in the directory is not")
            for offset in (4, 5, 6, 7, *range(28, 42, 2), 39, 41)
        ],
        *[(in_record(offset, b"\1"), "its directory is another one") for offset in (4, 6, 8, 10)],
        (shifted, "its directory is another one|offset"),
        (longer, "the data of 'b' end elsewhere"),
    ],
)
def test_bytes_that_only_some_programs_see(
    tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    path = tmp_path / "a.zip"
    write_zip(path, {"a": b"one" * 99, "b": b"two" * 99}, epoch=0)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(zipfile.BadZipFile, match=reason):
        read(path)


def plain(name: str) -> zipfile.ZipInfo:
    """With the attributes of a release's members."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o100644 << 16
    return info


@pytest.mark.parametrize("mode", [0o120777, 0o100777, 0o104644, 0o644])
def test_members_that_other_programs_make_links_or_programs_of(tmp_path: Path, mode: int) -> None:
    """CMake unpacks a release by libarchive: a file below a link is then written elsewhere."""
    info, path = plain("include/l"), tmp_path / "a.zip"
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, b"../../elsewhere")
    with pytest.raises(
        zipfile.BadZipFile, match="the entry of 'include/l' in the directory is not of the form"
    ):
        read(path)


@pytest.mark.parametrize(
    "names", [("a/l", "a/l/x"), ("a/l", "a/l!", "a/l/x/y"), ("a/L", "a/l"), ("a/B/x", "a/b")]
)
def test_members_that_cannot_be_beside_each_other(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Windows' names do not differ by case: other programs keep the last one of two."""
    path = tmp_path / "a.zip"
    with pytest.raises(ReleaseError, match="cannot be unpacked beside each other"):
        write_zip(path, dict.fromkeys(names, b""), epoch=0)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(plain(name), b"")
    with pytest.raises(zipfile.BadZipFile, match="two members of one name, or one below another"):
        read(path)


def test_compressed_data_without_an_end(tmp_path: Path) -> None:
    """Size and CRC are right; a program that reads on takes what follows for more of the data."""
    content, path = b"one" * 99, tmp_path / "a.zip"
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    stream = packer.compress(content) + packer.flush(zlib.Z_SYNC_FLUSH)
    for packed in (stream + packer.flush(), stream):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(plain("a"), packed)
        data = bytearray(path.read_bytes())
        for start in (8, ends(bytes(data))[0] + 10):  # the methods of both headers
            struct.pack_into("<H", data, start, zipfile.ZIP_DEFLATED)
            struct.pack_into("<I", data, start + 6, zlib.crc32(content))
            struct.pack_into("<I", data, start + 14, len(content))
        path.write_bytes(data)
        if packed is not stream:
            assert read(path) == {"a": content}
    with pytest.raises(zipfile.BadZipFile, match="the data of 'a' end elsewhere"):
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
        with pytest.raises(zipfile.BadZipFile, match="'a' is damaged"):
            read(path)


def test_members_that_no_release_has(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    cases: list[tuple[str, dict[str, object]]] = [
        *((name, {}) for name in ("é", "a/../../b", "/a", "a\\b", "c:a", "a/")),
        ("a", {"extra": b"\1\0\0\0"}),
        ("a", {"comment": b"c"}),
        ("a", {"compress_type": zipfile.ZIP_BZIP2}),
    ]
    for name, fields in cases:
        info = zipfile.ZipInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(info, b"data")
        with pytest.raises(zipfile.BadZipFile, match="is not of the form"):
            read(path)
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(zipfile.BadZipFile, match="two members of one name"):
        read(path)


def test_bounds_of_what_is_read() -> None:
    bounds = (zip_archive._FREE, zip_archive._RATIO, zip_archive._MOST, zip_archive._MOST_MEMBERS)
    assert bounds == (1_048_576, 40, 2_147_483_648, 10_000)


def test_members_are_bounded_also_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zip"
    write_zip(path, {"a": bytes(60), "b": bytes(41)}, epoch=0)
    monkeypatch.setattr(zip_archive, "_MOST", 101)
    assert len(read(path)) == 2
    monkeypatch.setattr(zip_archive, "_MOST_MEMBERS", 2)
    assert len(read(path)) == 2
    for bound, value in (("_MOST", 100), ("_MOST_MEMBERS", 1)):
        with monkeypatch.context() as patched, pytest.raises(zipfile.BadZipFile, match="out of proportion"):
            patched.setattr(zip_archive, bound, value)
            read(path)
    with monkeypatch.context() as patched, pytest.raises(zipfile.BadZipFile, match="out of proportion"):
        patched.setattr(zip_archive, "_FREE", 0)
        patched.setattr(zip_archive, "_RATIO", 0)
        read(path)
    monkeypatch.setattr(zip_archive, "_FREE", 0)
    monkeypatch.setattr(zip_archive, "_RATIO", 1)
    assert path.stat().st_size > 101 and len(read(path)) == 2


def test_holes_give_no_bytes(tmp_path: Path) -> None:
    path, sparse = tmp_path / "a.zip", tmp_path / "sparse.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data, method in (
            ("a", bytes(1 << 20), zipfile.ZIP_STORED),
            ("b", bytes(9 << 20), zipfile.ZIP_DEFLATED),
        ):
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    content = path.read_bytes()
    with sparse.open("wb") as file:
        for start in range(0, len(content), 4096):
            file.seek(start)
            if any(piece := content[start : start + 4096]):
                file.write(piece)
    assert sparse.read_bytes() == content
    assert len(read(path)) == 2
    if sparse.stat().st_blocks * 512 < 1 << 19:
        with pytest.raises(zipfile.BadZipFile, match="out of proportion"):
            read(sparse)


def test_a_directory_is_not_read_before_its_size_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`zipfile` makes an object of each entry, whatever the numbers in the record are."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(30):
            archive.writestr(f"{number:200}", b"")
    data = path.read_bytes()
    monkeypatch.setattr(zip_archive, "_MOST_MEMBERS", 10)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    large = ends(data)[1]
    record = struct.pack(
        "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 30, 30, large - ends(data)[0], ends(data)[0]
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, large, 1)
    small = in_record(12, struct.pack("<I", 1))(data)
    for changed, reason in (
        (data, "out of proportion"),
        (small[:large] + record + locator + small[large:], "bytes of none"),
        (data + b"x", "bytes of none"),
        (b"PK", "not a zip file"),
        (b"PK\5\6" + bytes(6), "not a zip file"),
    ):
        path.write_bytes(changed)
        with pytest.raises(zipfile.BadZipFile, match=reason):
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
    path = write_wheel(tmp_path, name, {}, {"METADATA": bytes((1 << 18) + 1)}, epoch=0)
    with pytest.raises(ReleaseError, match="its METADATA has 262145 bytes"):
        read_metadata(path, name)


@pytest.mark.parametrize("file", ["METADATA", "WHEEL"])
def test_texts_of_a_wheel_that_are_read_by_lines_are_bounded(file: str, tmp_path: Path) -> None:
    """A line of one byte takes 60 of memory, and megabytes of lines some kilobytes of the file."""
    name = WheelName(name="aotforge-attention", version="1")
    path = write_wheel(tmp_path, name, {}, {file: b"x\n" * (1 << 17)}, epoch=0)
    assert len(read_wheel(path)[f"{name.info}/{file}"]) == 1 << 18
    path = write_wheel(tmp_path, name, {}, {file: b"x\n" * (1 << 17) + b"x"}, epoch=0)
    with pytest.raises(ReleaseError, match=f"its {file} has 262145 bytes"):
        read_wheel(path)


@pytest.mark.parametrize(
    ("content", "method", "size", "right"),
    [
        (b"Metadata-Version: 2.1\n", zipfile.ZIP_DEFLATED, 2**20, False),
        (b"", zipfile.ZIP_DEFLATED, 100, False),
        (b"x" * 22, zipfile.ZIP_STORED, 23, False),
        (b"x" * 22, zipfile.ZIP_STORED, 22, True),
        (random.Random(1).randbytes(2**20), zipfile.ZIP_DEFLATED, None, True),
    ],
)
def test_compressed_data_with_a_hole(
    tmp_path: Path, content: bytes, method: int, size: int | None, right: bool
) -> None:
    """A hole of 4 GiB costs nothing, and was read into memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = content if method == zipfile.ZIP_STORED else packer.compress(content) + packer.flush()
    size = len(data) if size is None else size
    numbers = (zlib.crc32(content), size, len(content), 1)
    time = (0, 33)  # 1980-01-01
    header = (
        struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, method, *time, *numbers, 0)
        + b"a"
        + data.ljust(size, b"\0")
    )
    entry = struct.pack(
        "<4s2B5H3I5H2I", b"PK\1\2", 20, 3, 20, 0, method, *time, *numbers, 0, 0, 0, 0, 0o100644 << 16, 0
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry) + 1, len(header), 0)
    path = tmp_path / "a.zip"
    path.write_bytes(header + entry + b"a" + end)
    if right:
        assert read(path) == {"a": content}
        return
    with pytest.raises(zipfile.BadZipFile, match="the compressed data of 'a' are larger than its content"):
        read(path)


def test_a_stored_member_that_is_a_hole(tmp_path: Path) -> None:
    """It raised the bound for others, and had a gigabyte of memory itself."""
    size = 4 << 20
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a"), bytes(size))
    data = path.read_bytes()
    with path.open("wb") as file:
        file.write(data[:31])
        file.seek(31 + size)
        file.write(data[31 + size :])
    if path.stat().st_blocks * 512 > size:
        pytest.skip("the file system has no holes")
    with pytest.raises(OSError, match="its file is sparse"):
        read(path)


def test_a_member_is_in_memory_once(tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "a.zip"
    content = random.Random(1).randbytes(4 << 20) + bytes(size - (4 << 20))
    write_zip(path, {"a": content}, epoch=0)
    digest = zlib.crc32(content)
    del content
    tracemalloc.start()
    try:
        data = read(path)["a"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data) == size and zlib.crc32(data) == digest
    assert peak < 1.4 * size
