"""Shared caches in folders, S3 and behind HTTP: planted faults are found, reported and repaired; only keys can write."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from aotforge.errors import PublishError, TrustError
from aotforge.publish.cache import session
from aotforge.publish.cache.index import CacheIndex, Name, SharedObject, decode_index, load_index, object_name
from aotforge.publish.cache.reader import LEAST_RATE, CacheReader
from aotforge.publish.cache.session import CachePlaces, SharedCache, open_shared_cache
from aotforge.publish.cache.writer import CacheWriter, prune
from aotforge.publish.keys import KeySet, create_keys
from aotforge.publish.signed_index import change_index, load_state
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import Clock, ErrorKind, Reader, Store, StoreError
from tests.integration.publish.conftest import MakeStore
from tests.support.publishing import NOW, ROOT
from tests.support.web import running_web

KIND = "images-1"
DAY = int(NOW.timestamp()) // 86400


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def content(number: int) -> bytes:
    return f"object {number} ".encode() * 20


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

    def places(self, **changes: object) -> CachePlaces:
        fields = {
            "limit": 10**9,
            "checkout": self.scratch,
            "memory": self.scratch / "memory",
            "environment": {},
        }
        return CachePlaces(**{**fields, **changes})  # type: ignore[arg-type]

    def write(self, *numbers: int) -> None:
        """A trusted job that offers these objects."""
        target = self.places(target=str(self.scratch / "store"), keys=self.scratch / "keys")
        with open_shared_cache(target, self.notes.append) as shared:
            shared.expect(KIND, map(key, numbers))
            for number in numbers:
                if shared.load(KIND, key(number)) is None:
                    shared.offer(KIND, key(number), content(number))

    def read(self, *numbers: int, source: str = "") -> list[bytes | None]:
        """A job without keys, of a machine that has not seen the place before."""
        shutil.rmtree(self.scratch / "memory", ignore_errors=True)
        reading = self.places(source=source or str(self.scratch / "store"), root=str(self.root))
        with open_shared_cache(reading, self.notes.append) as shared:
            shared.expect(KIND, map(key, numbers))
            return [shared.load(KIND, key(number)) for number in numbers]

    def object_file(self, number: int) -> Path:
        return self.scratch / "store" / object_name(hashlib.sha256(content(number)).hexdigest())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    create_keys(tmp_path / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    return Place(tmp_path)


def index_of(store: Store, keys: KeySet) -> CacheIndex:
    return load_index(store, load_state(store, keys).index.cache)


def writer(store: Store, keys: KeySet, limit: int = 10**9) -> CacheWriter:
    return CacheWriter(store=store, keys=keys, index={}, limit=limit)


def test_what_a_trusted_job_writes_others_read(place: Place) -> None:
    place.write(1, 2)
    assert place.read(1, 2, 3) == [content(1), content(2), None]
    assert place.notes[-1].startswith("shared cache: 2 objects, 0.0 MB read from ")


def test_over_http(place: Place) -> None:
    place.write(1, 2)
    with running_web(place.scratch / "store") as web:
        assert place.read(1, 2, source=web.url) == [content(1), content(2)]


def test_folder_and_s3_hold_the_same(make_store: MakeStore, keys: KeySet) -> None:
    one = writer(make_store(), keys)
    one.offer((KIND, key(1)), content(1))
    one.finish(NOW)
    index = index_of(make_store(), keys)
    assert {name: found.sha256 for name, found in index.items()} == {
        (KIND, key(1)): hashlib.sha256(content(1)).hexdigest()
    }
    assert b"".join(make_store().read(object_name(index[KIND, key(1)].sha256))) == content(1)


def test_two_jobs_at_once_both_get_into_the_index(make_store: MakeStore, keys: KeySet) -> None:
    jobs = [writer(make_store(), keys) for _ in range(2)]
    for number, job in enumerate(jobs):
        job.offer((KIND, key(number)), content(number))
    threads = [threading.Thread(target=job.finish, args=(NOW,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(index_of(make_store(), keys)) == {(KIND, key(0)), (KIND, key(1))}


def poison(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"object", b"poison"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def prolong(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (poison, "has other content than the signed index states"),
        (truncate, "is truncated to"),
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


def test_an_index_of_other_keys_is_not_believed(place: Place, tmp_path: Path) -> None:
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


def test_a_changed_index_object_is_not_believed_and_is_replaced(place: Place) -> None:
    place.write(1)
    (index,) = (
        path for path in (place.scratch / "store" / "objects").iterdir() if path != place.object_file(1)
    )
    index.write_bytes(index.read_bytes().replace(key(1).encode(), key(2).encode()))
    assert place.read(1, 2) == [None, None]
    assert "does not match the signed index" in place.notes[-1]
    place.write(1)
    assert place.read(1, 2) == [content(1), None]


def test_an_older_index_is_not_believed_by_who_saw_a_newer_one(place: Place) -> None:
    place.write(1)
    before = shutil.copytree(place.scratch / "store", place.scratch / "before")
    place.write(1, 2)
    reading = place.places(source=str(place.scratch / "store"), root=str(place.root))
    with open_shared_cache(reading, place.notes.append):
        pass
    shutil.rmtree(place.scratch / "store")
    before.rename(place.scratch / "store")
    with open_shared_cache(reading, place.notes.append) as shared:
        assert shared.load(KIND, key(1)) is None
    assert "cannot be trusted" in place.notes[-1]


def test_without_keys_nothing_is_written(place: Place) -> None:
    target = place.places(target=str(place.scratch / "store"))
    with pytest.raises(PublishError, match="no keys"), open_shared_cache(target, place.notes.append):
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


def test_an_object_that_no_index_names_is_not_read(place: Place) -> None:
    place.write(1)
    place.store.put_if_absent(object_name(key(2)), content(2))
    assert place.read(2) == [None]


def test_a_source_needs_a_root(place: Place) -> None:
    with (
        pytest.raises(TrustError, match="no root of trust"),
        open_shared_cache(place.places(source=str(place.scratch / "store")), place.notes.append),
    ):
        pass


def test_keys_come_from_the_environment(place: Place) -> None:
    environment = {"AOTFORGE_CACHE_ROOT": str(place.root)}
    for role in ("targets", "snapshot", "timestamp"):
        pem = (place.scratch / "keys" / f"{role}-1.pem").read_text()
        environment[f"AOTFORGE_CACHE_KEY_{role.upper()}"] = pem
    target = place.places(target=str(place.scratch / "store"), environment=environment)
    with open_shared_cache(target, place.notes.append) as shared:
        shared.offer(KIND, key(1), content(1))
    assert place.read(1) == [content(1)]
    # keys of releases are not taken
    released = {name.replace("_CACHE", ""): value for name, value in environment.items()}
    with pytest.raises(PublishError, match="no keys"):
        place.places(target="x", environment=released).key_set()


def test_an_interrupted_command_does_not_write_the_index(place: Place) -> None:
    target = place.places(target=str(place.scratch / "store"), keys=place.scratch / "keys")
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), open_shared_cache(target, place.notes.append) as shared:
            shared.offer(KIND, key(1), content(1))
            raise error
        assert (place.scratch / "store" / "tuf").exists() is (error is ValueError)
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
    reading = place.places(source="http://hanging", root=str(place.root), seconds=0.05)
    with open_shared_cache(reading, place.notes.append) as shared:
        assert shared.load(KIND, key(1)) is None
    assert "did not answer in time; it is not used" in place.notes[-1]
    server.released.set()


def entries(*numbers: int) -> CacheIndex:
    return {
        (KIND, key(n)): SharedObject(
            sha256=hashlib.sha256(content(n)).hexdigest(), size=len(content(n)), used=DAY
        )
        for n in numbers
    }


def opened(
    reader: Reader, index: CacheIndex, *, patience: float = 20.0, clock: Clock = time.monotonic
) -> tuple[CacheReader, list[str]]:
    reported: list[str] = []

    def reject(name: Name, reason: str) -> None:
        reported.append(reason)

    return CacheReader(
        reader, index, reject=reject, stop=reported.append, patience=patience, clock=clock
    ), reported


def test_objects_of_a_server_that_hangs_are_not_waited_for_one_by_one() -> None:
    server = Hanging()
    reader, reported = opened(server, entries(*range(50)), patience=0.05)
    reader.expect(entries(*range(50)))
    assert [reader.load((KIND, key(n))) for n in range(50)] == [None] * 50
    assert reported == ["it is too slow: 0 bytes in 0 s"]
    server.released.set()


class Slow:
    """Sends every object, after time that only the reader's clock shows."""

    url = "slow"

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        self.now += self._seconds
        yield next(content(n) for n in range(200) if name.endswith(hashlib.sha256(content(n)).hexdigest()))


def test_the_time_to_wait_grows_with_what_arrives_only() -> None:
    names = list(entries(*range(200)))
    slow = Slow(seconds=1.0)
    reader, reported = opened(slow, entries(*range(200)), patience=20.0, clock=lambda: slow.now)
    found = [reader.load(name) for name in names]
    sent = sum(data is not None for data in found)
    assert 20 <= sent <= 25  # 20 s, and a tenth of a second for each
    assert len(reported) == 1
    assert "too slow" in reported[0]
    assert len(content(1)) < LEAST_RATE / 100
    quick = Slow(seconds=0.05)
    reader, reported = opened(quick, entries(*range(200)), patience=1.0, clock=lambda: quick.now)
    assert None not in [reader.load(name) for name in names]


class Failing:
    """A server that fails for every object."""

    url = "failing"

    def __init__(self) -> None:
        self.requests = 0

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        self.requests += 1
        raise StoreError(ErrorKind.UNAVAILABLE, "failing/x: the server answered 503")
        yield b""


def test_a_failing_server_is_given_up_at_once() -> None:
    server = Failing()
    reader, reported = opened(server, entries(*range(50)))
    assert [reader.load((KIND, key(n))) for n in range(50)] == [None] * 50
    assert reported == ["failing/x: the server answered 503"]
    assert server.requests == 1


def test_what_was_not_used_for_longest_is_removed_at_the_limit(place: Place) -> None:
    store, keys = place.store, place.places(keys=place.scratch / "keys").key_set()
    size = len(content(10))
    for number, day in ((10, 30), (11, 20), (12, 10)):
        one = writer(store, keys, limit=2 * size)
        one.offer((KIND, key(number)), content(number))
        one.finish(NOW)
        _used_at(store, keys, number, DAY - day)
    assert set(index_of(store, keys)) == {(KIND, key(11)), (KIND, key(12))}
    assert not place.object_file(10).exists()
    # a use counts: 11 stays, though it is older
    one = CacheWriter(store=store, keys=keys, index=index_of(store, keys), limit=2 * size)
    one.use((KIND, key(11)))
    one.offer((KIND, key(13)), content(13))
    one.finish(NOW)
    assert set(index_of(store, keys)) == {(KIND, key(11)), (KIND, key(13))}


def _used_at(store: Store, keys: KeySet, number: int, day: int) -> None:
    """Sets the day of an object's last use, as a writer of that day."""
    from dataclasses import replace

    from aotforge.publish.cache.index import encode_index
    from aotforge.publish.index import Index, IndexedFile

    def change(index: Index) -> Index:
        found = dict(load_index(store, index.cache))
        found[KIND, key(number)] = replace(found[KIND, key(number)], used=day)
        data = encode_index(found)
        sha256 = hashlib.sha256(data).hexdigest()
        if store.size(object_name(sha256)) is None:
            store.put_if_absent(object_name(sha256), data)
        return replace(index, cache=IndexedFile(name="index.json", size=len(data), sha256=sha256))

    change_index(store, keys, change, now=NOW)


def test_prune_removes_what_no_index_names(place: Place) -> None:
    place.write(1)
    place.write(1, 2)
    place.store.put_if_absent(object_name(key(3)), b"of a killed job")
    keys = place.places(keys=place.scratch / "keys").key_set()
    done = prune(place.store, keys, 10**9, NOW)
    assert done.removed == 2  # and the first index
    assert done.freed > len(b"of a killed job")
    assert place.read(1, 2) == [content(1), content(2)]
    assert len(list((place.scratch / "store" / "objects").iterdir())) == 3


def test_a_place_that_cannot_be_written_does_not_stop_the_command(place: Place) -> None:
    place.write(1)
    keys = place.places(keys=place.scratch / "keys").key_set()

    class Full(DirectoryStore):
        def put_if_absent(self, name: str, *_: object, **__: object) -> None:
            raise StoreError(ErrorKind.FULL, f"{name}: the disk is full")

    shared = SharedCache(place.notes.append)
    shared.writer = CacheWriter(store=Full(place.scratch / "store"), keys=keys, index={}, limit=10**9)
    shared.offer(KIND, key(2), content(2))
    session._finish(shared, shared.writer)
    assert "the disk is full; nothing was written there" in place.notes[-1]
    assert place.read(1, 2) == [content(1), None]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format": 2, "objects": {}}',
        b'{"format": 1, "objects": {"../x-1": {"' + b"a" * 64 + b'": ["' + b"a" * 64 + b'", 1, 1]}}}',
        b'{"format": 1, "objects": {"images-1": {"short": ["' + b"a" * 64 + b'", 1, 1]}}}',
        b'{"format": 1, "objects": {"images-1": {"' + b"a" * 64 + b'": ["' + b"a" * 64 + b'", -1, 1]}}}',
        b'{"format": 1, "objects": {"images-1": {"' + b"a" * 64 + b'": ["../' + b"a" * 61 + b'", 1, 1]}}}',
        b'{"format": 1, "objects": {"images-1": {"' + b"a" * 64 + b'": 7}}}',
        b'{"format": 1, "objects": 7}',
    ],
)
def test_a_signed_index_that_is_not_valid_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError):
        decode_index(data)


def test_an_expired_index_is_not_believed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = place.places(keys=place.scratch / "keys").key_set()
    one = writer(place.store, keys)
    one.offer((KIND, key(1)), content(1))
    one.finish(NOW - timedelta(days=91))
    assert place.read(1) == [None]
    assert "cannot be trusted" in place.notes[-1]
