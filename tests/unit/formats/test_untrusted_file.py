"""Bounded reads of files that others have made: what is refused, and the bounds themselves."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.formats import untrusted_file
from aotforge.formats.untrusted_file import (
    check_folder_size,
    check_holes,
    check_json,
    open_regular,
    parse_json,
    read_regular,
)


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize(
    ("make", "number", "words"),
    [
        (Path.mkdir, errno.EISDIR, "it is a folder"),
        (os.mkfifo, errno.EINVAL, "it is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), errno.EINVAL, "it is not a regular file"),
        (_bind, errno.ENXIO, "No such device"),
        (lambda path: None, errno.ENOENT, "No such file"),
    ],
)
def test_what_is_not_a_regular_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object], number: int, words: str
) -> None:
    path = tmp_path / "name"
    make(path)
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match=words) as caught:
        open_regular(path)
    assert (caught.value.errno, caught.value.filename) == (number, str(path))
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_regular_file_is_open_in_this_process_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content" and not file.writable()
        assert not os.get_inheritable(file.fileno())


def test_a_file_of_more_bytes_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_regular(path) == read_regular(path, limit=7) == b"content"
    with pytest.raises(OSError, match="it is larger than 6 bytes") as caught:
        read_regular(path, limit=6)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))


def test_a_file_that_is_longer_than_its_size() -> None:
    """Like one that grows while it is read: the kernel shows a size of 0 for its own files."""
    path = Path("/proc/self/mountinfo")
    content = path.read_bytes()
    assert path.stat().st_size == 0 < len(content)
    assert read_regular(path, limit=len(content)) == content
    with pytest.raises(OSError, match="larger"):
        read_regular(path, limit=len(content) - 1)


def test_bounds_of_documents() -> None:
    assert (untrusted_file.TEXT_LIMIT, untrusted_file.VALUE_LIMIT) == (268_435_456, 8_388_608)


@pytest.mark.parametrize("text", ["[1,2,3]", '{"a":[1]}', '[{"a":1}]', "[[[]]]"])
def test_values_are_counted_before_they_are_made(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 if text[1] in "1[" else 2
    for data in (text, text.encode()):
        monkeypatch.setattr(untrusted_file, "VALUE_LIMIT", count)
        check_json(data)
        assert parse_json(data) == json.loads(text)
        monkeypatch.setattr(untrusted_file, "VALUE_LIMIT", count - 1)
        with pytest.raises(ValueError, match=f"about {count} values, {count - 1} are allowed"):
            parse_json(data)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", "[" * 100_000, '{"a":' * 100_000])
def test_other_texts_are_refused_by_one_kind_of_error(data: bytes | str) -> None:
    with pytest.raises(ValueError):
        parse_json(data)


def test_the_number_of_keys_of_an_object() -> None:
    assert parse_json('[{"a":1,"b":{"c":2}}]', keys=2) == [{"a": 1, "b": {"c": 2}}]
    for text, keys in (('{"a":{"a":1,"b":2,"c":3}}', 2), ('{"a":1}', 0)):
        assert parse_json(text) == json.loads(text)
        with pytest.raises(ValueError, match=f"keys, {keys} are allowed"):
            parse_json(text, keys=keys)


def test_the_files_of_a_folder_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_file, "FOLDER_LIMIT", 100)
    (tmp_path / "one").write_bytes(bytes(60))
    (tmp_path / "other").write_bytes(bytes(40))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(bytes(1000))
    check_folder_size(tmp_path)
    (tmp_path / "other").write_bytes(bytes(41))
    with pytest.raises(OSError, match="the files in this folder have at least 101 bytes"):
        check_folder_size(tmp_path)
    (tmp_path / "other").unlink()
    (tmp_path / "other").symlink_to("one")
    with pytest.raises(OSError, match="other is a link"):
        check_folder_size(tmp_path)


def _with_holes(path: Path, *pieces: tuple[int, bytes]) -> Path:
    """A file with `bytes` at each offset; its last one is its size."""
    with path.open("wb") as file:
        for at, data in pieces:
            file.seek(at)
            file.write(data)
        file.truncate()
    return path


@pytest.mark.parametrize(
    ("pieces", "right"),
    [
        (((0, b"x" * (2 << 20)),), True),
        (((0, b"x"), (1 << 20, b"x")), True),
        (((2 << 20, b"x"),), False),
        (tuple((n << 18, b"x") for n in range(8)), False),
        (((0, b""),), True),
    ],
)
def test_holes_are_limited(pieces: tuple[tuple[int, bytes], ...], right: bool, tmp_path: Path) -> None:
    path = _with_holes(tmp_path / "file", *pieces)
    if path.stat().st_blocks * 512 > path.stat().st_size and not right:
        pytest.skip("the file system has no holes")
    with open_regular(path) as file:
        if right:
            check_holes(file)
        else:
            with pytest.raises(OSError, match="its file is sparse"):
                check_holes(file)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 0


def test_a_hole_at_the_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    os.truncate(path, 2 << 20)
    with open_regular(path) as file, pytest.raises(OSError, match="its file is sparse"):
        check_holes(file)
    with pytest.raises(OSError, match="file: its file is sparse"):
        check_folder_size(tmp_path)
    os.truncate(path, 4096 + (1 << 20))
    assert check_folder_size(tmp_path) == 4096, "a hole costs its author nothing"


def test_a_file_of_holes_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a call, and a file can have millions."""
    path = _with_holes(tmp_path / "file", *((n << 19, b"x") for n in range(1000)))
    calls: list[int] = []
    seek = os.lseek

    def counted(handle: int, at: int, whence: int) -> int:
        calls.append(whence)
        return seek(handle, at, whence)

    monkeypatch.setattr(os, "lseek", counted)
    with open_regular(path) as file, pytest.raises(OSError, match="its file is sparse"):
        check_holes(file)
    assert len(calls) < 20


def test_names_of_one_file_count_once(tmp_path: Path) -> None:
    """In one folder or in several; a tarball has a second name for some bytes."""
    (tmp_path / "a").write_bytes(bytes(5000))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "c").write_bytes(b"x")
    known: set[tuple[int, int]] = set()
    assert (check_folder_size(tmp_path, known), check_folder_size(tmp_path, known)) == (5001, 0)


@pytest.mark.parametrize("count", [3, 4])
def test_the_number_of_files_in_a_folder_is_limited(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_file, "FILES_LIMIT", 3)
    for number in range(count):
        (tmp_path / f"{number}").write_bytes(b"xx")
    if count == 3:
        assert check_folder_size(tmp_path) == 6
        return
    with pytest.raises(OSError, match="this folder has more than 3 files, a release has fewer"):
        check_folder_size(tmp_path)


@pytest.mark.parametrize("whences", [{os.SEEK_HOLE, os.SEEK_DATA}, {os.SEEK_DATA}])
@pytest.mark.parametrize(
    ("number", "right"), [(errno.EINVAL, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)]
)
def test_a_file_system_that_does_not_state_holes(
    whences: set[int], number: int, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek = os.lseek

    def without(handle: int, at: int, whence: int) -> int:
        if whence in whences:
            raise OSError(number, os.strerror(number))
        return seek(handle, at, whence)

    path = _with_holes(tmp_path / "file", (2 << 20, b"x"))
    monkeypatch.setattr(os, "lseek", without)
    with open_regular(path) as file:
        if right:
            check_holes(file)
        else:
            with pytest.raises(OSError, match="Input/output error"):
                check_holes(file)
