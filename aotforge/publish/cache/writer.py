"""Writes objects to a shared cache in the background, and its signed index at the end."""

import hashlib
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue

from aotforge.base.cache_folder import Collection
from aotforge.errors import PublishError, TrustError
from aotforge.publish.cache.index import (
    INDEX_LIMIT,
    USED_DAYS,
    CacheIndex,
    Name,
    SharedObject,
    encode_index,
    is_object_name,
    load_index,
    merge,
    most_recent,
    object_name,
)
from aotforge.publish.cache.reader import LEAST_RATE, complete
from aotforge.publish.index import OBJECTS, Index, IndexedFile
from aotforge.publish.keys import KeySet
from aotforge.publish.signed_index import change_index, check_not_revoked, load_state
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import ErrorKind, Store, StoreError

FINISH_SECONDS = 60.0
"""Seconds that a build waits at its end for a place to which it writes, besides the time for the bytes at the least rate."""

WAITING_BYTES = 512 * 2**20
"""Bytes that wait to be sent; beyond, objects are not sent: memory is for compilers."""

_THREADS = 4
_DAY = 86_400


@dataclass
class CacheWriter:
    """Objects for `store`, whose index is signed with `keys`. `limit`: bytes of all objects; `index`: what is there.

    `sent` are the bytes of new objects, `skipped` objects that were not sent.
    """

    store: Store
    keys: KeySet
    index: CacheIndex
    limit: int
    sent: list[int] = field(default_factory=list)
    skipped: int = 0
    _used: set[Name] = field(default_factory=set)
    _damaged: set[Name] = field(default_factory=set)
    _requests: dict[Name, tuple[int, Future[SharedObject]]] = field(default_factory=dict)
    _queue: SimpleQueue[tuple[Name, bytes, Future[SharedObject]]] = field(default_factory=SimpleQueue)
    _threads: int = 0

    def wants(self, name: Name) -> bool:
        """Whether the place lacks the object, or has a damaged one."""
        return (name not in self.index or name in self._damaged) and name not in self._requests

    def use(self, name: Name) -> None:
        """Records a use."""
        self._used.add(name)

    def replace(self, name: Name) -> None:
        """The place has a damaged object, which the next offer replaces."""
        self._damaged.add(name)

    def offer(self, name: Name, data: bytes) -> None:
        """Sends an object in the background."""
        if not self.wants(name):
            self._used.add(name)
            return
        waiting = sum(size for size, future in self._requests.values() if not future.done())
        if waiting + len(data) > WAITING_BYTES:
            self.skipped += 1
            return
        future: Future[SharedObject] = Future()
        self._requests[name] = len(data), future
        self._queue.put((name, data, future))
        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name="shared cache").start()

    def adopt(self, name: Name, entry: SharedObject) -> None:
        """The place has this object already: a worker has put it there, and its bytes were verified."""
        future: Future[SharedObject] = Future()
        future.set_result(replace(entry, used=int(time.time()) // _DAY))
        self._requests[name] = entry.size, future

    def finish(self, now: datetime) -> None:
        """Waits for the objects and puts them into the signed index. Raises PublishError, TrustError, StoreError, TimeoutError."""
        deadline = time.monotonic() + FINISH_SECONDS + sum(s for s, _ in self._requests.values()) / LEAST_RATE
        added: dict[Name, SharedObject] = {}
        failure: Exception | None = None
        for name, (size, future) in self._requests.items():
            try:
                added[name] = future.result(timeout=max(0.0, deadline - time.monotonic()))
                self.sent.append(size)
            except (StoreError, TimeoutError) as error:
                failure = failure or error
        today = int(now.timestamp()) // _DAY
        old = {name for name in self._used & self.index.keys() if today - self.index[name].used >= USED_DAYS}
        if added or old:
            self.change(added, now)
        if failure:
            self.skipped += len(self._requests) - len(added)
            raise failure

    def _work(self) -> None:
        while True:
            name, data, future = self._queue.get()
            complete(future, lambda name=name, data=data: self._send(name, data))  # type: ignore[misc]

    def _send(self, name: Name, data: bytes) -> SharedObject:
        sha256 = hashlib.sha256(data).hexdigest()
        put_object(self.store, object_name(sha256), data, replace=name in self._damaged)
        return SharedObject(sha256=sha256, size=len(data), used=int(time.time()) // _DAY)

    def change(self, added: CacheIndex, now: datetime) -> None:
        """Puts objects that were sent into the signed index, and removes what exceeds the limit. Raises as `finish`."""
        self.store.probe()
        today = int(now.timestamp()) // _DAY
        removed: set[str] = set()

        def change(index: Index) -> Index:
            before = index_to_change(self.store, index)
            merged = merge(before, added, self._used, today)
            kept = most_recent(merged, self.limit)
            removed.update(one.sha256 for name, one in merged.items() if name not in kept)
            removed.difference_update(one.sha256 for one in kept.values())
            if kept == before and index.cache is not None:
                return index
            data = encode_index(kept)
            file = IndexedFile(name="index.json", size=len(data), sha256=hashlib.sha256(data).hexdigest())
            _put_index(self.store, object_name(file.sha256), data)
            return replace(index, cache=file)

        change_index(self.store, self.keys, change, now=now)
        for sha256 in removed:
            self.store.remove(object_name(sha256))


def index_to_change(store: Store, index: Index) -> CacheIndex:
    """The index in the store; empty for a damaged or missing one, which the next change replaces. Raises StoreError."""
    try:
        return load_index(store, index.cache)
    except TrustError:
        return {}
    except StoreError as error:
        if error.kind is not ErrorKind.MISSING:
            raise
        return {}


def prune(store: Store, keys: KeySet, limit: int, now: datetime) -> Collection:
    """Reduces the place to `limit` bytes, then removes every object that its index does not name.

    An object that another command sends meanwhile may be among them: readers make it again, and the next writer sends it.
    Raises PublishError, TrustError, StoreError.
    """
    before = _objects(store)
    CacheWriter(store=store, keys=keys, index={}, limit=limit).change({}, now)
    state = load_state(store, keys)
    check_not_revoked(state, store.url)
    index = state.index
    named = {object_name(one.sha256) for one in load_index(store, index.cache).values()}
    named |= {object_name(index.cache.sha256)} if index.cache else set()
    for name in _objects(store).keys() - named:
        store.remove(name)
    after = _objects(store)
    gone = before.keys() - after.keys()
    return Collection(removed=len(gone), freed=sum(before[name] for name in gone), left=sum(after.values()))


def _objects(store: Store) -> dict[str, int]:
    """Objects of caches in the place with their sizes; other files there are of other programs."""
    return {name: size for name, size in store.names(f"{OBJECTS}/").items() if is_object_name(name)}


def put_object(store: Store, name: str, data: bytes, *, replace: bool) -> None:
    """Creates an object; one of another size under its name, or any with `replace`, is removed first. Raises StoreError."""
    if replace:
        store.remove(name)
    try:
        store.put_if_absent(name, data)
    except StoreError as error:
        if error.kind is not ErrorKind.EXISTS:
            raise
        if store.size(name) != len(data):
            store.remove(name)
            store.put_if_absent(name, data)


def _put_index(store: Store, name: str, data: bytes) -> None:
    """Creates the index object and reads it back: no reader could use the place without it. Raises PublishError, StoreError."""
    put_object(store, name, data, replace=False)
    if read_small(store, name, limit=INDEX_LIMIT) != data:
        put_object(store, name, data, replace=True)
        if read_small(store, name, limit=INDEX_LIMIT) != data:
            raise PublishError(
                f"{store.url}/{name} was read back with other bytes than were sent",
                cause="the server or the way to it is faulty, or another program writes there",
                hint="the index is unchanged; run the same command again",
            )
