"""One contract for every store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.s3 import S3Store
from aotforge.publish.stores.store import ErrorKind, Store, StoreError
from tests.integration.publish.conftest import MakeStore
from tests.support.s3 import Server

MIB = 1 << 20


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()


def kind(act: Callable[[], object]) -> ErrorKind:
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.kind


def test_honours_everything(store: Store) -> None:
    found = store.probe()
    assert found.put and found.swap
    assert found.notes("x") == ()
    assert not store.names("")  # the probe leaves nothing that counts as an object


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, 11 * MIB + 3])
@pytest.mark.parametrize("as_file", [True, False])
def test_what_is_put_is_read(store: Store, tmp_path: Path, size: int, as_file: bool) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    (tmp_path / "file").write_bytes(data)
    counted: list[int] = []
    store.put_if_absent("1.0b/a+b.tar.gz", tmp_path / "file" if as_file else data, on_bytes=counted.append)
    assert sum(counted) == size
    assert store.size("1.0b/a+b.tar.gz") == size
    assert b"".join(store.read("1.0b/a+b.tar.gz")) == data
    if size:
        assert b"".join(store.read("1.0b/a+b.tar.gz", start=size - 1)) == data[-1:]
    assert store.names("1.0b/") == {"1.0b/a+b.tar.gz": size}
    assert store.names("1.0") == {"1.0b/a+b.tar.gz": size}
    assert store.names("2") == {}


@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_an_object_is_never_replaced(store: Store, size: int) -> None:
    store.put_if_absent("a/b", b"1" * size)
    assert kind(lambda: store.put_if_absent("a/b", b"2" * size)) is ErrorKind.EXISTS
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
            assert fault.kind in {ErrorKind.EXISTS, ErrorKind.UNAVAILABLE, ErrorKind.MISSING}

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert b"".join(make_store().read("race")) == outcomes[0].encode() * size


def test_many_probe_at_once(make_store: MakeStore) -> None:
    """Probing does not disturb others that probe."""
    faults: list[StoreError] = []

    def probe(store: Store, rounds: int) -> None:
        try:
            for _ in range(rounds):
                found = store.probe()
                assert found.put and found.swap
        except StoreError as fault:
            faults.append(fault)

    rounds = 40 if isinstance(make_store(), DirectoryStore) else 3
    threads = [threading.Thread(target=probe, args=(make_store(), rounds)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, [fault.what for fault in faults]


def test_swap_is_for_who_read_last(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    assert one.load("tuf/x", limit=9) is None
    one.compare_and_swap("tuf/x", b"1", token=None)
    assert kind(lambda: other.compare_and_swap("tuf/x", b"2", token=None)) is ErrorKind.EXISTS
    loaded = other.load("tuf/x", limit=9)
    assert loaded and loaded[0] == b"1"
    other.compare_and_swap("tuf/x", b"3", token=loaded[1])
    assert kind(lambda: one.compare_and_swap("tuf/x", b"4", token=loaded[1])) is ErrorKind.EXISTS
    assert read_small(one, "tuf/x", limit=9) == b"3"


def test_what_is_missing_or_too_large(store: Store) -> None:
    assert store.size("a") is None
    assert kind(lambda: list(store.read("a"))) is ErrorKind.MISSING
    store.put_if_absent("a", b"12345")
    assert kind(lambda: store.load("a", limit=4)) is ErrorKind.REFUSED
    assert kind(lambda: read_small(store, "a", limit=4)) is ErrorKind.REFUSED


def forgetful(server: Server, *operations: str) -> S3Store:
    """A store on a server that takes conditions of these operations (all, if none are named) and ignores them."""
    store = server.store(server.bucket())

    def forget(params: dict[str, Any], model: Any, **_: Any) -> None:
        if not operations or model.name in operations:
            for name in ("If-None-Match", "If-Match"):
                params["headers"].pop(name, None)

    store._client.meta.events.register("before-call.s3", forget)
    return store


def test_a_server_without_conditions_is_found_out(server: Server) -> None:
    store = forgetful(server)
    found = store.probe()
    assert not (found.put or found.swap)
    assert (
        "does not honour" in found.notes("s3://x")[0] and "one publish at a time" in found.notes("s3://x")[0]
    )
    for size in (10, 6 * MIB):  # a look before the write is what is left
        store.put_if_absent(f"a{size}", b"1" * size)
        with pytest.raises(StoreError) as caught:
            store.put_if_absent(f"a{size}", b"2" * size)
        assert caught.value.kind is ErrorKind.EXISTS
        assert b"".join(store.read(f"a{size}")) == b"1" * size
    store.compare_and_swap("t", b"1", token=None)
    assert kind(lambda: store.compare_and_swap("t", b"2", token=None)) is ErrorKind.EXISTS
    assert kind(lambda: store.compare_and_swap("t", b"2", token='"0"')) is ErrorKind.EXISTS
