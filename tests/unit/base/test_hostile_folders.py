"""Folders with odd names, umasks and neighbours: nothing of others is removed, and every user can read what is made."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.base import files
from aotforge.base.files import (
    make_folders,
    open_regular,
    output_lock,
    private_file_fault,
    staged_folder,
    waiting_lock,
    write_atomic,
)
from aotforge.cli.command import TASKS
from aotforge.errors import OutputError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.formats.zip_archive import write_zip
from aotforge.pipeline.build_windows import _put
from aotforge.pipeline.reproduce import _make_empty
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import IndexedFile
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.sandbox.rootfs.cache_files import Store, file_lock, staged_file

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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folders_of_another_user_are_no_leftovers(tmp_path: Path) -> None:
    """In a folder with the sticky bit they cannot be removed, which ended every command of that name."""
    (left := tmp_path / ".out.staged-abcdefg0").mkdir()
    os.chown(left, 64042, 64042)
    with staged_folder(tmp_path / "out"):
        pass
    assert left.is_dir()


@pytest.mark.parametrize("mask", MASKS)
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        with staged_folder(tmp_path / "a" / "b") as staged:
            (staged / "lib").mkdir()
            (staged / "lib" / "file").write_text("x")
            (staged / "program").write_text("x")
            (staged / "program").chmod(0o700)
            (staged / "link").symlink_to("lib")
        write_atomic(tmp_path / "c" / "d" / "file", b"x")
        make_folders(tmp_path / "e" / "f")
    modes = {path.name: path.lstat().st_mode & 0o777 for path in tmp_path.rglob("*") if not path.is_symlink()}
    folders = dict.fromkeys(("a", "b", "lib", "c", "d", "e", "f"), 0o755)
    assert modes == folders | {"file": 0o644, "program": 0o755}


def test_an_output_whose_folder_others_can_exchange_is_refused(tmp_path: Path) -> None:
    """They put a link in the place of what is staged, or name another folder of this user like a leftover, which was removed."""
    (shared := tmp_path / "shared").mkdir()
    (shared / ".out.staged-abcdefg0").mkdir()
    for folder in (shared, tmp_path):
        folder.chmod(0o777)
        with (
            pytest.raises(OutputError, match=f"{folder} has mode 777: others can replace"),
            output_lock(shared / "out"),
        ):
            pass
        folder.chmod(0o1777)
        with output_lock(shared / "out"):  # with the sticky bit they cannot
            pass
        (shared / ".out.lock").unlink()
    assert [path.name for path in shared.iterdir()] == [".out.staged-abcdefg0"]


def test_nothing_is_staged_in_a_folder_that_others_can_exchange(tmp_path: Path) -> None:
    """Also where a caller forgets the lock."""
    (shared := tmp_path / "shared").mkdir()
    (shared / ".out.staged-abcdefg0").mkdir()
    shared.chmod(0o777)
    with pytest.raises(OutputError, match="mode 777: others can replace"), staged_folder(shared / "out"):
        pass
    assert [path.name for path in shared.iterdir()] == [".out.staged-abcdefg0"]


@pytest.mark.parametrize("use", [output_lock, staged_folder])
def test_a_folder_that_another_user_is_the_first_to_make_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """In a folder with the sticky bit, after the check and before this user's command makes it."""
    made = files.make_folders

    def first(path: Path) -> None:
        made(path)
        if path.name == "new":
            path.chmod(0o777)

    monkeypatch.setattr(files, "make_folders", first)
    with pytest.raises(OutputError, match="mode 777: others can replace"), use(tmp_path / "new" / "out"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


class Exchanging(dict[str, Any]):
    """Members; when the first is read, another user puts a link in the place of the archive."""

    def __init__(self, path: Path, victim: Path, members: dict[str, Any]) -> None:
        super().__init__(members)
        self.path, self.victim = path, victim

    def exchange(self) -> None:
        if not self.path.is_symlink():
            self.path.unlink(missing_ok=True)
            self.path.symlink_to(self.victim)

    def __getitem__(self, name: str) -> Any:
        self.exchange()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.exchange()
        return super().get(name, default)


def test_modes_of_archives_are_not_set_through_a_link(tmp_path: Path) -> None:
    """The folder's owner exchanges the file while it is written: a key of this user became readable to all."""
    victim = tmp_path / "victim"
    victim.write_text("key")
    victim.chmod(0o600)
    path = tmp_path / "a"
    write_zip(path, Exchanging(path, victim, {"a": b"data"}), epoch=0)
    path.unlink()
    write_tar_gz(path, Exchanging(path, victim, {"a": Member(content=b"data")}), epoch=0)
    path.unlink()
    with pytest.raises(OSError, match="symbolic"), staged_file(path) as staged:
        staged.unlink()
        staged.symlink_to(victim)
    assert victim.stat().st_mode & 0o777 == 0o600 and victim.read_text() == "key"
    with umask(0o077):
        write_zip(path, {"a": b"data"}, epoch=0)
        write_tar_gz(tmp_path / "b", {"a": Member(content=b"data")}, epoch=0)
        with staged_file(tmp_path / "c"):
            pass
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "abc"] == [0o644, 0o644, 0o444]


def test_an_archive_takes_the_place_of_a_link(tmp_path: Path) -> None:
    """The owner of the folder planted it: the file that it names was truncated, and became readable to all."""
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


def test_what_others_can_exchange_is_not_written_into(tmp_path: Path) -> None:
    """Their owner could exchange what is staged, cloned or executed there."""
    digest = hashlib.sha256(b"x").hexdigest()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / digest).write_bytes(b"x")
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    for use in (
        lambda: Store(tmp_path / "store").export([digest], shared),
        lambda: _put(shared / "a.zip", {"a": b""}, 0),
        lambda: _make_empty(shared),
        lambda: TASKS["wheel"].body(output=str(shared)),
    ):
        with pytest.raises(OutputError, match="mode 777: others can replace"):
            use()
    assert list(shared.iterdir()) == []
    assert Store(tmp_path / "store").export([digest], tmp_path / "own" / "store") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_an_output_in_a_folder_of_another_user_or_group_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    with output_lock(tmp_path / "out"):
        pass
    os.chown(tmp_path, 0, 64042)
    with pytest.raises(OutputError, match="mode 775"), output_lock(tmp_path / "out"):
        pass
    os.chown(tmp_path, 64042, 0)
    with (
        pytest.raises(OutputError, match="belongs to user 64042, who can replace it"),
        output_lock(tmp_path / "out"),
    ):
        pass
    os.chown(tmp_path, 0, 0)


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError), output_lock(tmp_path / "out"):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("lock", [output_lock, waiting_lock, file_lock])
def test_locks_that_others_cannot_open(
    tmp_path: Path, lock: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """Who can read a file can hold its lock for ever; those of earlier versions are readable."""
    path = tmp_path / "out"
    file = path if lock is file_lock else tmp_path / ".out.lock"
    for _ in range(2):
        with lock(path):
            assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o644)


def test_a_lock_that_is_another_file_too_keeps_its_mode(tmp_path: Path) -> None:
    """Another user can link a file that both can write to the lock's name; a store's administrator decides who may lock it."""
    (tmp_path / "shared").touch()
    (tmp_path / "shared").chmod(0o666)
    (tmp_path / ".out.lock").hardlink_to(tmp_path / "shared")
    with output_lock(tmp_path / "out"):
        assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o666
    store = DirectoryStore(tmp_path / "store")
    store.compare_and_swap("tuf/timestamp.json", b"1", token=None)
    lock = tmp_path / "store/tuf/.swap.lock"
    assert lock.stat().st_mode & 0o777 == 0o600
    lock.chmod(0o660)
    found = store.load("tuf/timestamp.json", limit=100)
    store.compare_and_swap("tuf/timestamp.json", b"2", token=found[1] if found else None)
    assert lock.stat().st_mode & 0o777 == 0o660


def test_a_leftover_that_is_exchanged_by_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store of another user: its owner cannot remove a folder of this user's that is not empty."""
    left, victim = tmp_path / ".x.part-abcdefgh", tmp_path / "victim"
    left.write_text("left by a killed process")
    victim.mkdir()
    (victim / "file").write_text("mine")

    def exchanged(handle: int, operation: int) -> None:
        left.rename(tmp_path / "aside")
        victim.rename(left)

    monkeypatch.setattr(fcntl, "flock", exchanged)
    files.remove_unlocked(left)
    assert (left / "file").read_text() == "mine"


def test_pipes_and_links_are_not_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match=r"regular|symbolic"), open_regular(tmp_path / name):
            pass


def test_keys_that_others_can_use(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    key = folder / "key.pem"
    key.write_text("key")
    key.chmod(0o600)
    assert private_file_fault(key) == ""
    key.chmod(0o644)
    assert "owner: mode 644" in private_file_fault(key)
    key.chmod(0o600)
    folder.chmod(0o777)
    assert "mode 777: others can replace what is in it" in private_file_fault(key)
    folder.chmod(0o1777)
    assert private_file_fault(key) == ""
    tmp_path.chmod(0o777)
    assert f"{tmp_path} has mode 777" in private_file_fault(key)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_key_of_another_user(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("key")
    key.chmod(0o600)
    os.chown(key, 64042, 64042)
    assert "belongs to user 64042" in private_file_fault(key)


@pytest.mark.parametrize("mask", MASKS)
def test_folders_of_locks_and_downloads_belong_to_their_user_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        with output_lock(tmp_path / "new" / "dir" / "prefix"):
            pass
        reader = DirectoryStore(tmp_path)
        (tmp_path / "x").write_bytes(b"x")
        file = IndexedFile(name="x", size=1, sha256=hashlib.sha256(b"x").hexdigest())
        fetch_file(reader, "x", file, tmp_path / "cache" / "downloads")
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.name: path.stat().st_mode & 0o777 for path in made} == dict.fromkeys(
        ("new", "dir", "cache", "downloads"), 0o755
    )


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


def test_modes_are_not_set_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who may write the parent folder exchanges the new one by a link before its mode is set."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (tmp_path / "shared").mkdir()
    made = os.mkdir

    def exchanged(path: Any, *arguments: Any, **named: Any) -> None:
        made(path, *arguments, **named)
        os.rmdir(path, dir_fd=named.get("dir_fd"))
        os.symlink(victim, path, dir_fd=named.get("dir_fd"))

    monkeypatch.setattr(os, "mkdir", exchanged)
    with pytest.raises(OSError, match="directory"):
        make_folders(tmp_path / "shared" / "new")
    assert victim.stat().st_mode & 0o777 == 0o700
