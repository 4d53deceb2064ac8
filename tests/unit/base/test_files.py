"""Atomic writes, locks and folders: a failure at any moment leaves what was there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotforge.base import files
from aotforge.base.files import (
    output_errors,
    output_lock,
    private_file_fault,
    staged_folder,
    waiting_lock,
    write_atomic,
)
from aotforge.errors import OutputBusyError, OutputError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.formats.zip_archive import write_zip


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_write_atomic_makes_folders(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "b", b"one")
    write_atomic(tmp_path / "a" / "b", b"two")
    assert tree(tmp_path) == {"a/b": b"two"}


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_modes_are_those_of_the_umask(tmp_path: Path, mask: int) -> None:
    """As of every program: with 002 the users of a group share outputs, caches and locks."""
    with umask(mask):
        for data in (b"new", b"replaced"):
            write_atomic(tmp_path / "folder" / "file", data)
        with output_lock(tmp_path / "output"), staged_folder(tmp_path / "output") as staged:
            (staged / "staged file").write_bytes(b"")
        with waiting_lock(tmp_path / "waited"):
            write_zip(tmp_path / "zip", {"a": b""}, epoch=0)
            write_tar_gz(tmp_path / "tar", {"a": Member(content=b"")}, epoch=0)
    found = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {path.name for path in found if path.is_dir()} == {"folder", "output"}
    assert {path.name for path in found if not path.is_dir()} == {
        *("file", "staged file", ".output.lock", ".waited.lock", "zip", "tar")
    }
    for path, mode in found.items():
        full = 0o777 if path.is_dir() else 0o666
        assert mode == full & ~mask, path


def test_a_file_is_private_by_its_mode_and_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (key := tmp_path / "key.pem").touch(0o600)
    tmp_path.chmod(0o777)
    assert private_file_fault(key) == ""
    key.chmod(0o640)
    assert "mode 640" in private_file_fault(key)
    key.chmod(0o400)
    owner = key.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert (f"belongs to user {owner}" in private_file_fault(key)) == bool(owner)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    write_atomic(tmp_path / "f", b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr({"fsync": "os.fsync", "replace": "pathlib.Path.replace"}[call], fail)
    with pytest.raises(OutputError, match=r"(?s)cannot write .*f: No space left.*the disk is full"):
        write_atomic(tmp_path / "f", b"new")
    assert tree(tmp_path) == {"f": b"old"}


def killed_writer(path: Path, place: str) -> None:
    """A process that writes `path` and is killed at the call `place`."""
    child = os.fork()
    if not child:
        module, _, name = place.rpartition(".")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr({"os": os, "Path": Path}[module], name, lambda *_, **__: os.kill(os.getpid(), 9))
            write_atomic(path, b"new")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


@pytest.mark.parametrize("place", ["os.fsync", "Path.replace"])
def test_the_next_writer_removes_what_a_killed_one_has_left(tmp_path: Path, place: str) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"old")
    killed_writer(path, place)
    assert set(tree(tmp_path)) == {"f", ".f.part"} and path.read_bytes() == b"old"
    write_atomic(path, b"next")
    assert tree(tmp_path) == {"f": b"next"}


def test_a_partial_file_that_was_linked_is_not_written_again(tmp_path: Path) -> None:
    """A publisher that was killed has left it."""
    write_atomic(tmp_path / "f", b"published")
    os.link(tmp_path / "f", tmp_path / ".g.part")
    write_atomic(tmp_path / "g", b"next")
    assert tree(tmp_path) == {"f": b"published", "g": b"next"}


def test_writers_of_one_file_wait_for_each_other(tmp_path: Path) -> None:
    texts = [bytes([number]) * 100_000 for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: write_atomic(tmp_path / "f", text), texts))
    assert list(tree(tmp_path)) == ["f"] and (tmp_path / "f").read_bytes() in texts


def test_a_full_disk_names_the_file_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write /target: No space left"), output_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/source", None, "/target")


def test_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with staged_folder(target) as staged:
        (staged / "one").write_bytes(b"1")
        assert not target.exists()
    assert tree(tmp_path) == {"out/one": b"1"}
    with pytest.raises(RuntimeError), staged_folder(target) as staged:
        (staged / "two").write_bytes(b"2")
        raise RuntimeError
    assert tree(tmp_path) == {"out/one": b"1"}
    with staged_folder(target) as staged:
        (staged / "three").write_bytes(b"3")
    assert tree(tmp_path) == {"out/three": b"3"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("exchange", [True, False])
def test_replacement_without_an_atomic_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    target = tmp_path / "out"
    write_atomic(target / "old", b"0")
    if not exchange:
        monkeypatch.setattr(files, "swap", lambda one, other: False)
    with staged_folder(target) as staged:
        (staged / "new").write_bytes(b"1")
    assert tree(tmp_path) == {"out/new": b"1"}


def test_failed_rename_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    write_atomic(target / "old", b"0")
    monkeypatch.setattr(files, "swap", lambda one, other: False)
    rename = Path.rename

    def fail_second(self: Path, to: Path) -> Path:
        if to == target and self.name.endswith(".staged"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(OutputError, match="Input/output error"), staged_folder(target) as staged:
        (staged / "new").write_bytes(b"1")
    assert tree(tmp_path) == {"out/old": b"0"}


def test_folders_of_killed_runs_are_removed(tmp_path: Path) -> None:
    write_atomic(tmp_path / ".out.staged" / "half", b"0")
    with staged_folder(tmp_path / "out") as staged:
        (staged / "new").write_bytes(b"1")
    assert tree(tmp_path) == {"out/new": b"1"}


def test_output_that_is_below_a_file_is_an_output_error(tmp_path: Path) -> None:
    write_atomic(tmp_path / "f", b"old")
    with pytest.raises(OutputError), output_lock(tmp_path / "f" / "out"):
        pass
    with pytest.raises(OutputError), staged_folder(tmp_path / "f" / "out"):
        pass
    with pytest.raises(OutputError):
        write_atomic(tmp_path / "f" / "out", b"")
    assert tree(tmp_path) == {"f": b"old"}


def test_second_process_gets_busy_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from aotforge.base.files import output_lock\n"
            "with output_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)",
            str(tmp_path / "out"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(OutputBusyError, match="another build is writing"), output_lock(tmp_path / "out"):
            pass
        with output_lock(tmp_path / "other"):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with output_lock(tmp_path / "out"), pytest.raises(OutputBusyError), output_lock(tmp_path / "out"):
        pass
    with output_lock(tmp_path / "out"):
        pass


@pytest.mark.parametrize("swaps", [True, False])
def test_a_link_in_the_place_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    """It is replaced, nothing is left beside, and what it led to is untouched."""
    if not swaps:
        monkeypatch.setattr(files, "swap", lambda one, other: False)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "f").write_bytes(b"kept")
    (tmp_path / "out").symlink_to("elsewhere")
    for text in (b"one", b"two"):
        with staged_folder(tmp_path / "out") as staged:
            (staged / "f").write_bytes(text)
        assert tree(tmp_path) == {"elsewhere/f": b"kept", "out/f": text}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out"]


def test_a_folder_of_other_files_is_not_replaced(tmp_path: Path) -> None:
    """As a home that was named as the output."""
    output = tmp_path / "output"
    output.mkdir()
    for _ in range(2):
        with staged_folder(output, known="lib/*.dll") as staged:
            (staged / "lib").mkdir()
            (staged / "lib" / "dl.dll").touch()
        assert (output / "lib" / "dl.dll").exists()
    (output / "lib" / "dl.dll").rename(output / "notes")
    with (
        pytest.raises(OutputError, match="has other files than a result"),
        staged_folder(output, known="lib/*.dll"),
    ):
        raise AssertionError
    assert (output / "notes").exists()


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "place").touch()
    with pytest.raises(OutputError, match="place is not a folder"), staged_folder(tmp_path / "place"):
        pass
    with staged_folder(tmp_path / "late"):
        (tmp_path / "late").touch()
    assert (tmp_path / "late").is_dir()
