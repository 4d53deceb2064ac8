"""The cache folder: locks, temporary files, errors."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import encode
from aotforge.errors import CacheError
from tests.support.other_user import as_other_user
from tests.unit.compile.test_entries import make_entry

KEY = "ab" * 32


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    entry = make_entry()
    with Cache(tmp_path / "c") as cache:
        assert cache.load(KEY) is None
        assert not (tmp_path / "c").exists()  # looking creates nothing
        cache.store(KEY, encode(entry))
        assert cache.load(KEY) == entry
    with Cache(tmp_path / "c") as cache:
        assert cache.load(KEY) == entry
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [KEY, "locks"]


def test_keys_are_locked_against_other_caches_and_freed_on_close(tmp_path: Path) -> None:
    with Cache(tmp_path) as one, Cache(tmp_path) as two:
        assert one.acquire(KEY)
        assert not two.acquire(KEY)
        assert two.acquire("cd" * 32)
        one.release(KEY)
        assert two.acquire(KEY)
        two.close()
        assert one.acquire(KEY)


def test_sessions_of_ended_builds_are_removed_and_running_ones_kept(tmp_path: Path) -> None:
    with Cache(tmp_path) as living:
        kept = living.temporary()
        (kept / "work").write_text("in progress")
        dead = tmp_path / "images-1" / "tmp" / "dead"
        dead.mkdir()
        (dead / "entry").write_text("left over")
        with Cache(tmp_path) as other:
            assert other.temporary() != kept
            assert not dead.exists()
            assert (kept / "work").exists()
    assert list((tmp_path / "images-1" / "tmp").iterdir()) == []


def test_a_damaged_entry_is_replaced(tmp_path: Path) -> None:
    data = encode(make_entry())
    with Cache(tmp_path) as cache:
        cache.store(KEY, data[:50])
        with pytest.raises(DamagedObjectError):
            cache.load(KEY)
        cache.store(KEY, data)
        assert cache.load(KEY) is not None


def test_folders_that_cannot_be_used_are_cache_errors(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with Cache(file / "below") as cache:
        with pytest.raises(CacheError, match="Not a directory") as caught:
            cache.store(KEY, b"")
        assert caught.value.exit_code == 3
        with pytest.raises(CacheError):
            cache.load(KEY)


def test_a_folder_without_permission_is_a_cache_error() -> None:
    def check(folder: Path) -> None:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        with Cache(folder / "c") as cache, pytest.raises(CacheError, match="Permission denied"):
            cache.acquire(KEY)

    as_other_user(check)


def test_a_complete_cache_that_cannot_be_written_is_used() -> None:
    """It belongs to root, or is read-only: reading takes no lock and writes nothing."""

    def check(folder: Path) -> None:
        with Cache(folder / "c") as cache:
            assert cache.load(KEY) is not None
            with pytest.raises(CacheError, match="Permission denied"):
                cache.acquire("1" * 64)

    def prepare(folder: Path) -> None:
        with Cache(folder / "c") as cache:
            cache.store(KEY, encode(make_entry()))
        (folder / "c" / "images-1" / "locks").chmod(0o444)
        (folder / "c" / "images-1").chmod(0o555)

    as_other_user(check, prepare=prepare)
