"""The shared caches of one command, read and written in the background, and their signed list.

The list holds SHA-256, size and last use of every object, by kind and key. It is the object
`cache/index.json`, a targets role of TUF that is signed by itself: an old list names valid objects only, for
a key is that of all inputs, so that neither snapshot nor timestamp is needed.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, TargetFile, Targets

from aotforge.base.cache_folder import Collection
from aotforge.base.object_cache import SharedObjects
from aotforge.errors import AotforgeError, PublishError, TrustError
from aotforge.publish.keys import KeySet, load_keys, metadata_errors, read_root, verify
from aotforge.publish.session import open_for_publishing, open_reader
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import (
    Clock,
    ExistsError,
    MissingError,
    ObjectStore,
    Reader,
    StoreError,
    redact_urls,
)
from aotforge.publish.trust import trusted_root

T = TypeVar("T")
LIST = "cache/index.json"
LIST_LIMIT = 64 * 2**20
OBJECTS = "objects"
_OBJECT_LIMIT = 2**31
_EXPIRES = timedelta(days=365)
_TRIES = 20
_PATH = re.compile(r"([a-z]{1,20}-[0-9]{1,4})/([0-9a-f]{64})")
_OBJECT = re.compile(rf"{OBJECTS}/[0-9a-f]{{64}}")

Name = tuple[str, str]
"""Kind and key of an object."""


@dataclass(frozen=True, kw_only=True)
class SharedObject:
    """An object in a store. `used`: day of its last use, in days since 1970."""

    sha256: str
    size: int
    used: int

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"{OBJECTS}/{self.sha256}"


KeyList = Mapping[Name, SharedObject]


def load_list(reader: Reader, root: Root) -> KeyList:
    """The list of a place, signed by the targets keys of `root`. Raises TrustError, StoreError."""
    data = read_small(reader, LIST, limit=LIST_LIMIT)
    return _verified(data, root, reader.url, expired=False)[0]


def change_list(store: ObjectStore, keys: KeySet, change: Callable[[KeyList], KeyList]) -> KeyList:
    """Replaces the list by `change(list)`, retrying after concurrent changes; an expired one is renewed.

    Raises PublishError without the key of the list, TrustError, StoreError.
    """
    root = read_root(keys.roots[-1], "the newest root among the keys").signed
    keys.require(root, ("targets",))
    for _ in range(_TRIES):
        before, version, token = dict[Name, SharedObject](), 0, None
        if stored := store.load(LIST, limit=LIST_LIMIT):
            (before, version), token = _verified(stored[0], root, store.url, expired=True), stored[1]
        if (after := change(before)) == before:
            return before
        try:
            store.compare_and_swap(LIST, _signed(after, version + 1, keys, root), token=token)
        except ExistsError:
            continue
        return after
    what = f"{store.url}: other commands changed the list of the shared cache {_TRIES} times at the same time"
    raise PublishError(what, hint="run the same command again")


def _signed(objects: KeyList, version: int, keys: KeySet, root: Root) -> bytes:
    targets = {}
    for (kind, key), entry in objects.items():
        path = f"{kind}/{key}"
        targets[path] = TargetFile(entry.size, {"sha256": entry.sha256}, path, {"custom": entry.used})
    expires = (datetime.now(UTC) + _EXPIRES).replace(microsecond=0)
    metadata: Metadata[Any] = Metadata(Targets(version=version, expires=expires, targets=targets))
    for signer in keys.allowed("targets", root):
        metadata.sign(signer, append=True)
    return metadata.to_bytes()


def _verified(data: bytes, root: Root, url: str, *, expired: bool) -> tuple[dict[Name, SharedObject], int]:
    """Objects and version of a signed list. Raises TrustError."""
    what, cause = f"{url}/{LIST} cannot be trusted", "it was changed, or signed by keys that the root lacks"
    with metadata_errors(what, cause, "build without this cache, and inform its owner"):
        targets = verify(Targets, data, root).signed
        if targets.is_expired() and not expired:
            raise RepositoryError("it is expired")
        return dict(map(_object, targets.targets.values())), targets.version


def _object(target: TargetFile) -> tuple[Name, SharedObject]:
    path, used = _PATH.fullmatch(target.path), target.custom
    made = SharedObject(sha256=target.hashes.get("sha256", ""), size=target.length, used=used)
    if not path or not _OBJECT.fullmatch(made.name) or made.size > _OBJECT_LIMIT or type(used) is not int:
        raise ValueError(f"the entry {target.path[:80]!r} has other fields")
    return (path[1], path[2]), made


FINISH_SECONDS = 60.0
"""Seconds that a build waits at its end, besides the time at the least rate."""

PATIENCE = 20.0
"""Seconds that a build waits for objects in all, besides 0.1 s for each and the time at the least rate."""

LEAST_RATE = 64 * 1024
"""Bytes per second below which compiling is faster than waiting."""

_USED_DAYS = 7
"""A use is recorded when the last recorded one is at least as old: not every build changes the list."""


def cache_root(address: str, file: str | None) -> Root:
    """The root of trust of a place to read from. Raises TrustError."""
    if not file:
        raise TrustError(
            f"there is no root of trust for the shared cache {redact_urls(address)}",
            cause="cache-root is not set",
            hint="get root.json from the cache's owner by a way that you trust, then set "
            "cache-root = 'FILE' in aotforge.toml",
        )
    return read_root(trusted_root(file, Path(), {}), file).signed


class _Threads:
    """Daemon threads that execute functions in order; one that hangs does not delay the command's end."""

    def __init__(self, limit: int) -> None:
        self._limit, self._queue = limit, SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """The function's result, some time."""
        future: Future[T] = Future()
        self._queue.put((future, function))
        if self._limit:
            self._limit -= 1
            threading.Thread(target=self._work, daemon=True, name="shared cache").start()
        return future

    def _work(self) -> None:
        while True:
            future, function = self._queue.get()
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for it
                future.set_exception(error)


class SharedCache(SharedObjects):
    """Objects in shared places, `note` receives reports."""

    def __init__(self, note: Callable[[str], None], clock: Clock = time.monotonic) -> None:
        self._note, self._clock, self._waited = note, clock, 0.0
        self._threads = _Threads(8)
        self._reader: Reader | None = None
        self._source = ""
        self._listed: KeyList = {}
        self._requested: dict[Name, Future[bytes]] = {}
        self._received: list[int] = []
        self._refused: set[Name] = set()
        self._used: set[Name] = set()
        self._target: tuple[ObjectStore, KeySet, int] | None = None
        self._there: KeyList = {}
        self._sent: dict[Name, tuple[int, Future[SharedObject]]] = {}

    def read_from(self, reader: Reader, listed: KeyList) -> None:
        """Objects of this list are read."""
        self._reader, self._source, self._listed = reader, reader.url, listed

    def write_to(self, store: ObjectStore, keys: KeySet, limit: int, there: KeyList) -> None:
        """Objects that `there` lacks are written; all together have at most `limit` bytes."""
        self._target, self._there = (store, keys, limit), there

    def expect(self, kind: str, keys: Iterable[str]) -> None:
        """Requests these objects, in this order."""
        for key in keys:
            self._request((kind, key))

    def _request(self, name: Name) -> Future[bytes] | None:
        reader, entry = self._reader, self._listed.get(name)
        if reader and entry and name not in self._requested and name not in self._refused:
            self._requested[name] = self._threads.submit(lambda: fetch_object(reader, entry))
        return self._requested.get(name)

    def load(self, kind: str, key: str) -> bytes | None:
        """The verified bytes; None for an object that is not listed or damaged, or of a slow place."""
        name, began = (kind, key), self._clock()
        if not (requested := self._request(name)):
            return None
        del self._requested[name]
        left = PATIENCE + sum(self._received) / LEAST_RATE + 0.1 * len(self._received) - self._waited
        try:
            if left <= 0:
                raise TimeoutError
            data = requested.result(timeout=left)
            self._received.append(len(data))
            self._used.add(name)
            return data
        except ValueError as error:
            self.reject(kind, key, str(error))
        except TimeoutError:
            self._give_up(f"it is too slow: {sum(self._received)} bytes in {self._waited + left:.0f} s")
        except MissingError:
            self.reject(kind, key, "is missing")
        except StoreError as error:
            self._give_up(error.what)
        finally:
            self._waited += self._clock() - began
        return None

    def reject(self, kind: str, key: str, reason: str) -> None:
        """A loaded object is not a valid one: it is not used, and the next offer replaces it."""
        self._refused.add((kind, key))
        self._note(f"shared cache {self._source}: {kind} {key[:12]} {reason}; it is dropped and made again")

    def _give_up(self, reason: str) -> None:
        self._note(f"shared cache {self._source} is not used any more: {reason}; the rest is made here")
        self._reader = None
        self._requested.clear()

    def wants(self, kind: str, key: str) -> bool:
        """Whether `offer` would store the object."""
        name = kind, key
        known = name in self._there and name not in self._refused
        return self._target is not None and not known and name not in self._sent

    def offer(self, kind: str, key: str, data: bytes) -> None:
        """Stores an object in the background, unless the place has it or nothing may be written."""
        self._used.add((kind, key))
        if self._target and self.wants(kind, key):
            store, damaged = self._target[0], (kind, key) in self._refused
            sending = self._threads.submit(lambda: put_object(store, data, replace=damaged))
            self._sent[kind, key] = len(data), sending

    def finish(self) -> None:
        """Writes the list, and reports what was read and written."""
        parts = []
        if self._received or self._refused:
            refused = f", {len(self._refused)} refused" if self._refused else ""
            read = f"{sum(self._received) / 1e6:.1f} MB read from {self._source}{refused}"
            parts.append(f"{len(self._received)} objects, {read}")
        if self._target:
            url = self._target[0].url
            try:
                count, written = self._write_list(*self._target)
                parts.append(f"{count} objects, {written / 1e6:.1f} MB written to {url}")
            except (AotforgeError, TimeoutError) as error:
                self.note_unused(url, error, "not everything was written there; the local cache has it")
        if parts:
            self._note(f"shared cache: {'; '.join(parts)}")

    def _write_list(self, store: ObjectStore, keys: KeySet, limit: int) -> tuple[int, int]:
        """Number and bytes of the objects that were added."""
        end = time.monotonic() + FINISH_SECONDS + sum(size for size, _ in self._sent.values()) / LEAST_RATE
        added, failure = {}, None
        for name, (_, sending) in self._sent.items():
            try:
                added[name] = sending.result(timeout=max(0.0, end - time.monotonic()))
            except (StoreError, TimeoutError) as error:
                failure = failure or error
        old = [n for n in self._used if n in self._there and _today() - self._there[n].used >= _USED_DAYS]
        if added or old:
            _change(store, keys, limit, added, self._used)
        if failure:
            raise failure
        return len(added), sum(entry.size for entry in added.values())

    def note_unused(self, place: str, error: Exception, effect: str) -> None:
        """Reports that a place cannot be used."""
        what = error.what if isinstance(error, AotforgeError) else "it did not answer in time"
        self._note(f"shared cache {redact_urls(place)}: {what}; {effect}")


def _today() -> int:
    return int(time.time()) // 86_400


def fetch_object(reader: Reader, entry: SharedObject) -> bytes:
    """The verified bytes of an object. Raises ValueError for other bytes, StoreError."""
    data = bytearray()
    for chunk in reader.read(entry.name):
        data += chunk
        if len(data) > entry.size:
            break
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise ValueError("has other content than the signed list states")
    return bytes(data)


def put_object(store: ObjectStore, data: bytes, *, replace: bool = False) -> SharedObject:
    """Creates an object; one of another size in its place, or any with `replace`, is removed first."""
    made = SharedObject(sha256=hashlib.sha256(data).hexdigest(), size=len(data), used=_today())
    there = store.size(made.name)
    if there == made.size and not replace:
        return made
    if there is not None:
        store.remove(made.name)
    with suppress(ExistsError):
        store.put_if_absent(made.name, data)
    return made


def _change(store: ObjectStore, keys: KeySet, limit: int, added: KeyList, used: Iterable[Name]) -> KeyList:
    """Adds stored objects to the list, records uses, and removes what was used least recently."""
    before: set[str] = set()

    def change(listed: KeyList) -> KeyList:
        merged = {**listed, **added}
        before.update(entry.name for entry in merged.values())
        merged |= {name: replace(merged[name], used=_today()) for name in used if name in merged}
        kept, size = {}, 0
        for name, entry in sorted(merged.items(), key=lambda item: (-item[1].used, item[0])):
            size += entry.size
            if size <= limit:
                kept[name] = entry
        return kept

    kept = change_list(store, keys, change)
    for name in before - {entry.name for entry in kept.values()}:
        store.remove(name)
    return kept


def shared_usage(address: str, root: str | None) -> dict[str, tuple[int, int]]:
    """Objects and bytes in a place, by kind. Raises PublishError, TrustError."""
    listed = load_list(open_reader(address), cache_root(address, root))
    sizes: dict[str, list[int]] = {}
    for (kind, _), entry in sorted(listed.items()):
        sizes.setdefault(kind, []).append(entry.size)
    return {kind: (len(kind_sizes), sum(kind_sizes)) for kind, kind_sizes in sizes.items()}


def prune_shared(address: str, keys_folder: Path | None, limit: int) -> Collection:
    """Reduces a place to `limit` bytes and removes unlisted objects, and no other files. Raises
    PublishError, TrustError."""
    store, keys = open_for_publishing(address), load_keys(keys_folder, {})
    before = store.names(f"{OBJECTS}/")
    kept = {entry.name for entry in _change(store, keys, limit, {}, ()).values()}
    gone = [name for name in before if name not in kept and _OBJECT.fullmatch(name)]
    for name in gone:
        store.remove(name)
    freed = sum(before[name] for name in gone)
    return Collection(removed=len(gone), freed=freed, left=sum(before.values()) - freed)


@contextmanager
def open_shared_cache(
    note: Callable[[str], None],
    *,
    source: str | None = None,
    target: str | None = None,
    root: str | None = None,
    keys: Path | None = None,
    limit: int = 0,
) -> Iterator[SharedCache]:
    """The shared places of a command: `source`, whose root of trust is the file `root`, is read; `target`,
    whose list is signed with `keys` and has at most `limit` bytes, is also written to. What was offered is
    listed when the block has ended, also by an error, but not when the user has interrupted it.

    A place that cannot be read or written, or whose list cannot be trusted, is reported to `note` and not
    used. Raises PublishError and TrustError for keys and roots that are not valid, before anything is slow.
    """
    shared, unusable = SharedCache(note), (TrustError, StoreError)
    trusted = cache_root(source, root) if source else None
    if target:
        store, signing = open_for_publishing(target), load_keys(keys, {})
        try:
            listed = change_list(store, signing, lambda entries: entries)
            shared.write_to(store, signing, limit, listed)
            if not source:
                shared.read_from(store, listed)
        except unusable as error:
            shared.note_unused(store.url, error, "nothing is read or written there")
    if source and trusted:
        try:
            reader = open_reader(source)
            shared.read_from(reader, load_list(reader, trusted))
        except unusable as error:
            shared.note_unused(source, error, "it is not used")
    try:
        yield shared
    finally:
        # who interrupts a build does not wait for a server
        if not isinstance(sys.exception(), KeyboardInterrupt):
            shared.finish()
