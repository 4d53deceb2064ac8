"""Folders with odd names and neighbours: nothing else is removed, and no link is followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.files import (
    output_lock,
    staged_folder,
)
from aotforge.errors import OutputError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.formats.zip_archive import write_zip


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


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "place").touch()
    with pytest.raises(OutputError, match="place is not a folder"), staged_folder(tmp_path / "place"):
        pass
    with staged_folder(tmp_path / "late"):
        (tmp_path / "late").touch()
    assert (tmp_path / "late").is_dir()
