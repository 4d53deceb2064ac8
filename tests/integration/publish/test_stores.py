"""One contract for every store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import ExistsError, MissingError, ObjectStore, StoreError
from tests.integration.publish.conftest import MakeStore

MIB = 1 << 20


@pytest.fixture
def store(make_store: MakeStore) -> ObjectStore:
    return make_store()


def kind(act: Callable[[], object]) -> type[StoreError]:
    with pytest.raises(StoreError) as caught:
        act()
    return type(caught.value)


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, 11 * MIB + 3])
@pytest.mark.parametrize("as_file", [True, False])
def test_what_is_put_is_read(store: ObjectStore, tmp_path: Path, size: int, as_file: bool) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    (tmp_path / "file").write_bytes(data)
    store.put_if_absent("1.0b/a+b.tar.gz", tmp_path / "file" if as_file else data)
    assert store.size("1.0b/a+b.tar.gz") == size
    assert b"".join(store.read("1.0b/a+b.tar.gz")) == data
    if size:
        assert b"".join(store.read("1.0b/a+b.tar.gz", start=size - 1)) == data[-1:]
    assert store.names("1.0b/") == {"1.0b/a+b.tar.gz": size}
    assert store.names("1.0") == {"1.0b/a+b.tar.gz": size}
    assert store.names("2") == {}


@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_an_object_is_never_replaced(store: ObjectStore, size: int) -> None:
    store.put_if_absent("a/b", b"1" * size)
    assert kind(lambda: store.put_if_absent("a/b", b"2" * size)) is ExistsError
    assert b"".join(store.read("a/b")) == b"1" * size


@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_of_many_writers_one_wins(make_store: MakeStore, size: int) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def write(number: int) -> None:
        other = make_store()
        barrier.wait()
        try:
            other.put_if_absent("race", str(number).encode() * size)
            outcomes.append(str(number))
        except StoreError as fault:
            assert type(fault) in {ExistsError, StoreError, MissingError}

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert b"".join(make_store().read("race")) == outcomes[0].encode() * size


def test_swap_is_for_who_read_last(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    assert one.load("tuf/x", limit=9) is None
    one.compare_and_swap("tuf/x", b"1", token=None)
    assert kind(lambda: other.compare_and_swap("tuf/x", b"2", token=None)) is ExistsError
    loaded = other.load("tuf/x", limit=9)
    assert loaded and loaded[0] == b"1"
    other.compare_and_swap("tuf/x", b"3", token=loaded[1])
    assert kind(lambda: one.compare_and_swap("tuf/x", b"4", token=loaded[1])) is ExistsError
    assert read_small(one, "tuf/x", limit=9) == b"3"


def test_what_is_missing_or_too_large(store: ObjectStore) -> None:
    assert store.size("a") is None
    assert kind(lambda: list(store.read("a"))) is MissingError
    store.put_if_absent("a", b"12345")
    assert kind(lambda: store.load("a", limit=4)) is StoreError
    assert kind(lambda: read_small(store, "a", limit=4)) is StoreError


def test_folders_and_files_may_be_links(tmp_path: Path) -> None:
    """Objects on a larger disk; a release of git-annex or Nix."""
    disk, annex = tmp_path / "disk", tmp_path / "annex"
    (tmp_path / "store" / "0.11.2b-r1").mkdir(parents=True)
    disk.mkdir()
    annex.write_bytes(b"archive")
    (tmp_path / "store" / "objects").symlink_to(disk)
    (tmp_path / "store" / "0.11.2b-r1" / "a.tar.gz").symlink_to(annex)
    store, name = DirectoryStore(tmp_path / "store"), "objects/abc"
    store.put_if_absent(name, b"object")
    with pytest.raises(StoreError) as caught:
        store.put_if_absent(name, b"another")
    assert type(caught.value) is ExistsError
    assert store.names("") == {"0.11.2b-r1/a.tar.gz": 7, name: 6}
    assert store.names("objects/") == {name: 6} and (disk / "abc").read_bytes() == b"object"
    assert store.size("0.11.2b-r1/a.tar.gz") == 7
    assert b"".join(store.read("0.11.2b-r1/a.tar.gz")) == b"archive"
    assert store.load("0.11.2b-r1/a.tar.gz", limit=100)
    store.remove(name)
    assert not list(disk.iterdir())


def test_hidden_files_are_not_listed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put_if_absent("objects/a", b"x")
    (tmp_path / "objects" / ".b").write_text("x")
    assert store.names("objects/") == store.names("") == {"objects/a": 1}
    assert store.names("nothing/") == store.names("objects/a/") == {}
