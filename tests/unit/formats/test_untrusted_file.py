"""Bounded reads of files that others have made: what is refused, and the bounds themselves."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.formats import untrusted_file
from aotforge.formats.untrusted_file import open_regular, parse_json, read_regular


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
    assert untrusted_file.TEXT_LIMIT == 268_435_456


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", "[" * 100_000, '{"a":' * 100_000])
def test_other_texts_are_refused_by_one_kind_of_error(data: bytes | str) -> None:
    with pytest.raises(ValueError):
        parse_json(data)
