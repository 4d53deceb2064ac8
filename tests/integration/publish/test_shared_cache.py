"""Shared caches in folders, S3 and behind HTTP: planted faults are found, reported and repaired; only keys
can write."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata, TargetFile, Targets

from aotforge.errors import PublishError, TrustError
from aotforge.publish import shared_cache as session
from aotforge.publish.keys import KeySet, create_keys, load_keys, read_root
from aotforge.publish.shared_cache import (
    LIST,
    KeyList,
    SharedCache,
    SharedObject,
    change_list,
    load_list,
    open_shared_cache,
    prune_shared,
    put_object,
)
from aotforge.publish.stores import reading
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ObjectStore, StoreError
from tests.integration.publish.conftest import MakeStore
from tests.support.publishing import NOW, ROOT
from tests.support.web import running_web

KIND = "images-1"
DAY = int(NOW.timestamp()) // 86400


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def content(number: int) -> bytes:
    return f"object {number} ".encode() * 20


def entry(number: int, used: int = DAY) -> SharedObject:
    data = content(number)
    return SharedObject(sha256=hashlib.sha256(data).hexdigest(), size=len(data), used=used)


def entries(*numbers: int) -> KeyList:
    return {(KIND, key(number)): entry(number) for number in numbers}


@dataclass
class Place:
    """A shared cache in a folder, with its keys; `notes` is what commands report."""

    scratch: Path
    notes: list[str] = field(default_factory=list)

    @property
    def store(self) -> DirectoryStore:
        return DirectoryStore(self.scratch / "store")

    @property
    def root(self) -> Path:
        return self.scratch / "keys" / "roots" / "1.root.json"

    def write(self, *numbers: int, limit: int = 10**9) -> None:
        """A trusted job that offers these objects."""
        with open_shared_cache(
            self.notes.append, target=str(self.scratch / "store"), keys=self.scratch / "keys", limit=limit
        ) as shared:
            shared.expect(KIND, map(key, numbers))
            for number in numbers:
                if shared.load(KIND, key(number)) is None:
                    shared.offer(KIND, key(number), content(number))

    def read(self, *numbers: int, source: str = "") -> list[bytes | None]:
        """A job without keys."""
        source = source or str(self.scratch / "store")
        with open_shared_cache(self.notes.append, source=source, root=str(self.root)) as shared:
            shared.expect(KIND, map(key, numbers))
            return [shared.load(KIND, key(number)) for number in numbers]

    def object_file(self, number: int) -> Path:
        return self.scratch / "store" / entry(number).name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    create_keys(tmp_path / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    return Place(tmp_path)


def listed(store: ObjectStore, keys: KeySet) -> set[int]:
    """Numbers of the objects in the list."""
    objects = load_list(store, read_root(keys.roots[-1], "it").signed)
    return {number for number in range(20) if (KIND, key(number)) in objects}


def writer(store: ObjectStore, keys: KeySet) -> SharedCache:
    shared = SharedCache(lambda text: None)
    shared.write_to(store, keys, 10**9, {})
    return shared


def test_what_a_trusted_job_writes_others_read(place: Place) -> None:
    place.write(1, 2)
    assert place.read(1, 2, 3) == [content(1), content(2), None]
    assert place.notes[-1] == f"shared cache: 2 objects, 0.0 MB read from {place.store.url}"


def test_over_http(place: Place) -> None:
    place.write(1, 2)
    with running_web(place.scratch / "store") as web:
        assert place.read(1, 2, source=web.url) == [content(1), content(2)]


def test_two_jobs_at_once_both_get_into_the_list(make_store: MakeStore, keys: KeySet) -> None:
    jobs = [writer(make_store(), keys) for _ in range(2)]
    for number, job in enumerate(jobs):
        job.offer(KIND, key(number), content(number))
    threads = [threading.Thread(target=job.finish) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listed(make_store(), keys) == {0, 1}
    assert b"".join(make_store().read(entry(1).name)) == content(1)


def poison(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"object", b"poison"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def prolong(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (poison, "has other content than the signed list states"),
        (truncate, "has other content"),
        (prolong, "has other content"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_damaged_object_is_dropped_reported_and_replaced_by_the_next_writer(
    place: Place, fault: object, reported: str
) -> None:
    place.write(1, 2)
    fault(place.object_file(1))  # type: ignore[operator]
    assert place.read(1, 2) == [None, content(2)]
    assert any(reported in note and key(1)[:12] in note for note in place.notes), place.notes
    assert "1 refused" in place.notes[-1]
    place.write(1, 2)
    assert place.read(1, 2) == [content(1), content(2)]


def test_a_list_of_other_keys_is_not_believed(place: Place, tmp_path: Path) -> None:
    place.write(1)
    attacker = Place(tmp_path / "attacker")
    create_keys(attacker.scratch / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    attacker.write(1, 2)
    shutil.copytree(attacker.scratch / "store", tmp_path / "store", dirs_exist_ok=True)
    assert place.read(1, 2) == [None, None]
    assert "cannot be trusted" in place.notes[-1]
    # and nothing is signed on top of it
    place.write(3)
    assert "nothing is read or written there" in place.notes[-1]


def _edited(data: bytes) -> bytes:
    return data.replace(key(1).encode(), key(2).encode())


@pytest.mark.parametrize("change", [_edited, lambda data: data[:-7], lambda data: b"{}"])
def test_a_changed_list_is_not_believed(place: Place, change: Callable[[bytes], bytes]) -> None:
    place.write(1)
    path = place.scratch / "store" / LIST
    path.write_bytes(change(path.read_bytes()))
    assert place.read(1, 2) == [None, None]
    assert f"{LIST} cannot be trusted" in place.notes[-1]


def test_without_keys_nothing_is_written(place: Place) -> None:
    target = str(place.scratch / "store")
    with (
        pytest.raises(PublishError, match="no keys to sign"),
        open_shared_cache(place.notes.append, target=target),
    ):
        pass
    assert not (place.scratch / "store").exists()


def test_keys_that_the_root_does_not_name_write_nothing(place: Place, tmp_path: Path) -> None:
    place.write(1)
    create_keys(tmp_path / "others", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    for pem in (tmp_path / "others").glob("*.pem"):
        pem.rename(tmp_path / "keys" / pem.name)
    with pytest.raises(PublishError, match="keys count for"):
        place.write(2)
    assert place.read(1, 2) == [content(1), None]


def test_an_object_that_is_not_listed_is_not_read(place: Place) -> None:
    place.write(1)
    put_object(place.store, content(2))
    assert place.read(2) == [None]


def test_a_source_needs_a_root(place: Place) -> None:
    with (
        pytest.raises(TrustError, match="no root of trust"),
        open_shared_cache(place.notes.append, source=str(place.scratch / "store")),
    ):
        pass


def test_an_interrupted_command_does_not_write_the_list(place: Place) -> None:
    target, keys = str(place.scratch / "store"), place.scratch / "keys"
    for error in (KeyboardInterrupt, ValueError):
        with (
            pytest.raises(error),
            open_shared_cache(place.notes.append, target=target, keys=keys, limit=10**9) as shared,
        ):
            shared.offer(KIND, key(1), content(1))
            raise error
        assert (place.scratch / "store" / LIST).exists() is (error is ValueError)
    assert place.read(1) == [content(1)]


class Hanging:
    """A server that accepts requests and never answers."""

    url = "hanging"

    def __init__(self) -> None:
        self.released = threading.Event()

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        self.released.wait()
        yield b""


def test_a_server_that_does_not_answer_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Hanging()
    monkeypatch.setattr(session, "open_reader", lambda address: server)
    monkeypatch.setattr(reading, "METADATA_SECONDS", 0.05)
    with open_shared_cache(place.notes.append, source="http://hanging", root=str(place.root)):
        pass
    assert "was not complete after 0 s; it is not used" in place.notes[-1]
    server.released.set()


def test_objects_of_a_server_that_hangs_are_not_waited_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PATIENCE", 0.05)
    server, notes = Hanging(), list[str]()
    shared = SharedCache(notes.append)
    shared.read_from(server, entries(*range(50)))
    shared.expect(KIND, map(key, range(50)))
    assert [shared.load(KIND, key(number)) for number in range(50)] == [None] * 50
    assert len(notes) == 1 and "it is too slow: 0 bytes in 0 s; the rest is made here" in notes[0]
    server.released.set()


class Failing:
    """A server that fails for every object."""

    url = "failing"

    def __init__(self) -> None:
        self.requests = 0

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        self.requests += 1
        raise StoreError("failing/x: the server answered 503")
        yield b""


def test_a_failing_server_is_given_up_at_once() -> None:
    server, notes = Failing(), list[str]()
    shared = SharedCache(notes.append)
    shared.read_from(server, entries(*range(50)))
    assert [shared.load(KIND, key(number)) for number in range(50)] == [None] * 50
    assert len(notes) == 1 and "the server answered 503" in notes[0]
    assert server.requests == 1


def test_what_was_not_used_for_longest_is_removed_at_the_limit(place: Place) -> None:
    keys = load_keys(place.scratch / "keys", {})
    for number in (10, 11, 12):
        place.write(number)
    days = {(KIND, key(number)): DAY - 40 + number for number in (10, 11, 12)}
    change_list(place.store, keys, lambda found: {n: replace(found[n], used=day) for n, day in days.items()})
    place.write(11, 13, limit=3 * len(content(10)))  # a use counts: 11 stays, though it is older than 12
    assert listed(place.store, keys) == {11, 12, 13}
    assert not place.object_file(10).exists()


def test_prune_removes_objects_that_are_not_listed_only(place: Place) -> None:
    """The address may name a folder with an `objects` of another kind, such as a Git repository."""
    place.write(1, 2)
    put_object(place.store, b"of a killed job")
    theirs = place.scratch / "store" / "objects" / "notes"
    theirs.write_text("of others")
    target, keys = str(place.scratch / "store"), place.scratch / "keys"
    assert prune_shared(target, keys, 10**9).removed == 1
    assert place.read(1, 2) == [content(1), content(2)] and theirs.exists()
    assert prune_shared(target, keys, len(content(1))).removed == 1
    assert [data is None for data in place.read(1, 2)].count(True) == 1


def test_a_place_that_cannot_be_written_does_not_stop_the_command(place: Place) -> None:
    place.write(1)

    class Full(DirectoryStore):
        def put_if_absent(self, name: str, *_: object, **__: object) -> None:
            raise StoreError(f"{name}: the disk is full")

    shared = SharedCache(place.notes.append)
    shared.write_to(Full(place.scratch / "store"), load_keys(place.scratch / "keys", {}), 10**9, {})
    shared.offer(KIND, key(2), content(2))
    shared.finish()
    assert "the disk is full; not everything was written there" in place.notes[-1]
    assert place.read(1, 2) == [content(1), None]


@pytest.mark.parametrize(
    "target",
    [
        TargetFile(1, {"sha256": "a" * 64}, "../x-1/" + "a" * 64, {"custom": 1}),
        TargetFile(1, {"sha256": "a" * 64}, "images-1/short", {"custom": 1}),
        TargetFile(1, {"sha256": "../" + "a" * 61}, "images-1/" + "a" * 64, {"custom": 1}),
        TargetFile(1, {"sha256": "a" * 64}, "images-1/" + "a" * 64),
        None,
    ],
)
def test_a_signed_list_that_is_not_valid_is_refused(place: Place, target: TargetFile | None) -> None:
    """None: a valid one that is expired."""
    keys = load_keys(place.scratch / "keys", {})
    late = datetime.now(UTC) + timedelta(days=1 if target else -1)
    made = Targets(expires=late.replace(microsecond=0), targets={target.path: target} if target else {})
    metadata = Metadata(made)
    metadata.sign(keys.signers["targets"][0])
    place.store.put_if_absent(LIST, metadata.to_bytes())
    with pytest.raises(TrustError, match="has other fields" if target else "it is expired"):
        load_list(place.store, read_root(keys.roots[0], "it").signed)
