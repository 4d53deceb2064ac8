"""Folder stores with links, files of others, large files and held locks."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from aotforge.base.cache_folder import Collection
from aotforge.publish.cache.session import prune_shared
from aotforge.publish.index import FOLDER, OBJECTS
from aotforge.publish.stores import directory
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.integration.publish.test_shared_cache import Place, content, place
from tests.support.publishing import NOW

__all__ = ["place"]

NAME = "0" * 64


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _prune(place: Place) -> Collection:
    places = place.places(target=str(place.scratch / "store"), keys=place.scratch / "keys")
    return prune_shared(places, NOW)


def test_prune_removes_objects_only(place: Place) -> None:
    """The address may name a folder with an `objects` of another kind, such as a Git repository."""
    place.write(1)
    objects = place.scratch / "store" / OBJECTS
    kept = ("pack/pack-1.idx", "notes", "A" * 64, f"{NAME}.txt", f"pack/{NAME}")
    for name in kept:
        (objects / name).parent.mkdir(exist_ok=True)
        (objects / name).write_text("of others")
    (objects / NAME).write_text("an object that no index names")
    assert _prune(place).removed == 1
    assert not (objects / NAME).exists()
    assert files(objects).keys() >= {*kept}
    assert place.read(1) == [content(1)]


def test_folders_and_files_may_be_links(tmp_path: Path) -> None:
    """Objects on a larger disk; a release of git-annex or Nix."""
    disk, annex = tmp_path / "disk", tmp_path / "annex"
    (tmp_path / "store" / "0.11.2b-r1").mkdir(parents=True)
    disk.mkdir()
    annex.write_bytes(b"archive")
    (tmp_path / "store" / OBJECTS).symlink_to(disk)
    (tmp_path / "store" / "0.11.2b-r1" / "a.tar.gz").symlink_to(annex)
    store, name = DirectoryStore(tmp_path / "store"), f"{OBJECTS}/{NAME}"
    store.probe()
    store.put_if_absent(name, b"object")
    with pytest.raises(StoreError) as caught:
        store.put_if_absent(name, b"another")
    assert caught.value.kind is ErrorKind.EXISTS
    assert store.names("") == {"0.11.2b-r1/a.tar.gz": 7, name: 6}
    assert store.names(f"{OBJECTS}/") == {name: 6} and (disk / NAME).read_bytes() == b"object"
    assert store.size("0.11.2b-r1/a.tar.gz") == 7
    assert b"".join(store.read("0.11.2b-r1/a.tar.gz")) == b"archive"
    assert store.load("0.11.2b-r1/a.tar.gz", limit=100)
    store.remove(name)
    assert not list(disk.iterdir())


def test_hidden_and_deep_files_are_not_listed(tmp_path: Path) -> None:
    """A store has no folders of that depth, and links may lead back."""
    store = DirectoryStore(tmp_path)
    store.put_if_absent("objects/a", b"x")
    (tmp_path / "objects" / ".b").write_text("x")
    deep = tmp_path.joinpath("objects", *"d" * 20)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    assert store.names("objects/") == {"objects/a": 1}
    (tmp_path / "objects" / "loop").symlink_to(".")
    assert len(store.names("objects/")) < 10
    assert store.names("nothing/") == store.names("objects/a/") == {}


def test_a_large_file_in_the_place_of_a_timestamp_is_not_read(tmp_path: Path) -> None:
    store, name = DirectoryStore(tmp_path), f"{FOLDER}/timestamp.json"
    store.compare_and_swap(name, b"1", token=None)
    loaded = store.load(name, limit=9)
    assert loaded
    os.truncate(tmp_path / name, 32 << 20)
    with pytest.raises(StoreError, match=r"timestamp\.json is larger than") as caught:
        store.compare_and_swap(name, b"2", token=loaded[1])
    assert caught.value.kind is ErrorKind.REFUSED and "/proc/" not in caught.value.what


@pytest.mark.parametrize("seconds", [0.5, 30.0])
def test_a_lock_that_another_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A publisher waits as long as another one can need it."""
    monkeypatch.setattr(directory, "_LOCK_SECONDS", seconds, raising=False)
    store, faults = DirectoryStore(tmp_path), list[StoreError]()
    store.compare_and_swap(f"{FOLDER}/a", b"1", token=None)

    def swap() -> None:
        try:
            store.compare_and_swap(f"{FOLDER}/b", b"1", token=None)
        except StoreError as fault:
            faults.append(fault)

    lock = tmp_path / FOLDER / ".swap.lock"
    thread = threading.Thread(target=swap, daemon=True)
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread.start()
        thread.join(20.0 if seconds < 1 else 0.5)
        waits = thread.is_alive()
    thread.join(20.0)
    assert waits == (seconds > 1) and not thread.is_alive()
    if seconds > 1:
        assert not faults and store.size(f"{FOLDER}/b") == 1
        return
    (fault,) = faults
    assert fault.kind is ErrorKind.UNAVAILABLE and f"{lock} is locked" in fault.what
    assert fault.cause and str(lock) in fault.hint
    assert store.size(f"{FOLDER}/b") is None
