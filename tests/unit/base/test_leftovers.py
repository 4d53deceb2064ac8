"""Folders with odd names and neighbours: nothing else is removed, and no link is followed."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.base.files import (
    open_regular,
    output_lock,
    staged_folder,
)
from aotforge.errors import OutputError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.formats.zip_archive import write_zip
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.directory import DirectoryStore

MASKS = [0o000, 0o022, 0o077]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["*", "[a]", "?", "other", "with $HOME; rm\n"])
def test_only_own_leftovers_are_removed(tmp_path: Path, name: str) -> None:
    others = (
        ".other.staged-abc",
        ".other.staged-abcdefg1",
        ".other.staged-Backup01",
        ".*.staged-mine",
        ".[a].staged-x",
    )
    for other in others:
        (tmp_path / other).mkdir()
    own = tmp_path / f".{name}.staged-abcdefg0"
    own.mkdir(exist_ok=True)
    with staged_folder(tmp_path / name) as staged:
        (staged / "file").write_text("new")
    left = {path.name for path in tmp_path.iterdir()} - {name}
    removed = {".other.staged-abcdefg1"} if name == "other" else set()
    assert left == set(others) - removed
    assert (tmp_path / name / "file").read_text() == "new"


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Ends what waits for a pipe."""

    def stop(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


MAKERS: dict[str, Callable[[Path], object]] = {"pipe": os.mkfifo, "file": Path.touch}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_no_folder_is_not_removed_as_one(tmp_path: Path, kind: str) -> None:
    """rmtree waits for a pipe's writer without end, with the output locked; a file's name stayed taken."""
    make, out = MAKERS[kind], tmp_path / "out"
    make(left := tmp_path / ".out.staged-abcdefg0")
    with at_most(20), staged_folder(out) as staged:
        (staged / "file").write_text("new")
    assert left.lstat() and (out / "file").read_text() == "new"
    make(place := tmp_path / "place")
    with at_most(20), pytest.raises(OutputError, match="place is not a folder"), staged_folder(place):
        pass
    with at_most(20), staged_folder(tmp_path / "late"):
        make(tmp_path / "late")
    assert sorted(path.name for path in tmp_path.iterdir()) == [left.name, "late", "out", "place"]
    assert (tmp_path / "late").is_dir()


def test_an_archive_takes_the_place_of_a_link(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("key")
    victim.chmod(0o600)
    for name, write in (
        ("a.zip", lambda path: write_zip(path, {"a": b"data"}, epoch=0)),
        ("a.tar.gz", lambda path: write_tar_gz(path, {"a": Member(content=b"data")}, epoch=0)),
    ):
        (path := tmp_path / name).symlink_to(victim)
        write(path)
        assert victim.read_text() == "key" and victim.stat().st_mode & 0o777 == 0o600, name
        assert not path.is_symlink() and path.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "a.zip", "victim"]


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError), output_lock(tmp_path / "out"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_pipes_and_links_are_not_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match=r"regular|symbolic"), open_regular(tmp_path / name):
            pass


def test_a_download_does_not_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    victim = tmp_path / "victim"
    victim.write_text("content")
    digest = hashlib.sha256(b"x").hexdigest()
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / f"{digest}.part").symlink_to(victim)
    with pytest.raises(OutputError, match="part"):
        fetch_file(
            DirectoryStore(tmp_path),
            "x",
            IndexedFile(name="x", size=1, sha256=digest),
            tmp_path / "downloads",
        )
    assert victim.read_text() == "content"
