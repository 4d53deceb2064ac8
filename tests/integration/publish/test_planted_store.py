"""Planted links and other files in folder stores: nothing outside of the store, and nothing of others, is changed or removed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.base.cache_folder import Collection
from aotforge.errors import PublishError
from aotforge.publish.cache.session import prune_shared
from aotforge.publish.index import FOLDER, OBJECTS
from aotforge.publish.stores import directory
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.integration.publish.test_shared_cache import Place, content, place
from tests.support.publishing import NOW

__all__ = ["place"]

NAME = "0" * 64


def planted(scratch: Path, folder: str) -> tuple[DirectoryStore, Path]:
    """A store in which `folder` is a link to the user's documents."""
    home = scratch / "home"
    (home / "docs").mkdir(parents=True)
    (home / NAME).write_text("the user's")
    (home / "docs" / "thesis").write_text("the user's")
    (scratch / "store").mkdir(exist_ok=True)
    (scratch / "store" / folder).symlink_to(home)
    return DirectoryStore(scratch / "store"), home


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _prune(place: Place) -> Collection:
    places = place.places(target=str(place.scratch / "store"), keys=place.scratch / "keys")
    return prune_shared(places, NOW)


def test_prune_does_not_follow_a_planted_folder_of_objects(place: Place) -> None:
    _, home = planted(place.scratch, OBJECTS)
    before = files(home)
    with pytest.raises(PublishError, match="objects is a link"):
        _prune(place)
    assert files(home) == before


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


def test_a_build_writes_no_object_through_a_link(place: Place) -> None:
    _, home = planted(place.scratch, OBJECTS)
    before = files(home)
    place.write(1)
    assert any("objects is a link" in note for note in place.notes), place.notes
    assert files(home) == before


USES: dict[str, Callable[[DirectoryStore, str], object]] = {
    "names": lambda store, folder: store.names(f"{folder}/"),
    "size": lambda store, folder: store.size(f"{folder}/{NAME}"),
    "read": lambda store, folder: b"".join(store.read(f"{folder}/{NAME}")),
    "load": lambda store, folder: store.load(f"{folder}/{NAME}", limit=100),
    "put": lambda store, folder: store.put_if_absent(f"{folder}/new", b"x"),
    "swap": lambda store, folder: store.compare_and_swap(f"{folder}/new", b"x", token=None),
    "remove": lambda store, folder: store.remove(f"{folder}/{NAME}"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("folder", [OBJECTS, FOLDER, "0.11.2b-r1"])
def test_no_use_of_a_store_follows_a_link(tmp_path: Path, folder: str, use: str) -> None:
    store, home = planted(tmp_path, folder)
    before = files(home)
    with pytest.raises(StoreError, match=f"{folder} is a link") as caught:
        USES[use](store, folder)
    assert caught.value.kind is ErrorKind.REFUSED
    assert files(home) == before
    assert "/proc/" not in caught.value.what


def test_partial_files_behind_a_link_stay(tmp_path: Path) -> None:
    store, home = planted(tmp_path, OBJECTS)
    (home / ".x.part-abcdefgh").write_text("the user's")
    store.probe()
    assert (home / ".x.part-abcdefgh").exists()


def test_names_of_links_are_not_listed(tmp_path: Path) -> None:
    """Neither those that lead to files nor those that lead to folders; a store has no folders of that depth."""
    store, home = planted(tmp_path, "unused")
    store.put_if_absent("objects/a", b"x")
    (tmp_path / "store/objects/file").symlink_to(home / NAME)
    (tmp_path / "store/objects/folder").symlink_to(home)
    deep = tmp_path.joinpath("store/objects", *"d" * 20)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    assert store.names("objects/") == {"objects/a": 1}
    assert store.size("objects/file") is None


def test_no_file_behind_a_link_is_read(tmp_path: Path) -> None:
    """Or replaced, which would be done for a file of the expected content."""
    (tmp_path / "secret").write_text("the user's")
    (tmp_path / "store" / FOLDER).mkdir(parents=True)
    (tmp_path / "store" / FOLDER / "timestamp.json").symlink_to(tmp_path / "secret")
    store, name = DirectoryStore(tmp_path / "store"), f"{FOLDER}/timestamp.json"
    for use in (
        lambda: list(store.read(name)),
        lambda: store.load(name, limit=100),
        lambda: store.compare_and_swap(name, b"", token=hashlib.sha256(b"the user's").hexdigest()),
    ):
        with pytest.raises(StoreError, match=r"timestamp\.json: ") as caught:
            use()
        assert caught.value.kind is ErrorKind.REFUSED
    assert store.size(name) is None
    assert (tmp_path / "secret").read_text() == "the user's"


def test_a_large_file_in_the_place_of_a_timestamp_is_not_read(tmp_path: Path) -> None:
    """Who owns a store exchanges the file between its two reads: one of 15 TiB, all of it a hole, held a publisher for hours."""
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
