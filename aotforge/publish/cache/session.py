"""The shared caches of one command: where it reads and writes, and its statistics."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from aotforge.base.cache_folder import Collection
from aotforge.errors import AotforgeError, PublishError, TrustError
from aotforge.publish.cache.index import CacheIndex, Name, load_index
from aotforge.publish.cache.reader import CacheReader, within
from aotforge.publish.cache.writer import FINISH_SECONDS, CacheWriter, index_to_change, prune
from aotforge.publish.keys import KeySet, load_keys, read_root
from aotforge.publish.session import MEMORY, open_for_publishing, open_reader
from aotforge.publish.signed_index import check_not_revoked, load_state
from aotforge.publish.stores.store import Reader, Store, StoreError, redact_urls
from aotforge.publish.trust import trusted_index, trusted_root
from aotforge.publish.upload import publish_errors

COMMITTED_ROOT = Path("releases/cache-root.json")
"""The root of trust of the project's own cache in a checkout, once there is one."""

OPEN_SECONDS = 60.0
"""Seconds that a build waits for the index of a shared cache."""

_PREFIX = "AOTFORGE_CACHE_"
_SHOWN = 5
"""Refused objects that are named; the summary has their number."""


@dataclass(frozen=True, kw_only=True)
class CachePlaces:
    """`source`: address to read from; `target`: address to read from and write to. `root`: file with the root of trust;
    `keys`: folder of the keys of the target's index. Variables named AOTFORGE_CACHE_... in `environment` are defaults of both.

    `limit`: bytes of all objects in the target. `memory`: the local cache folder. `seconds`: time limit for the index.
    """

    source: str | None = None
    target: str | None = None
    root: str | None = None
    keys: Path | None = None
    limit: int
    checkout: Path
    memory: Path
    environment: Mapping[str, str]
    seconds: float = OPEN_SECONDS

    def key_set(self) -> KeySet:
        """The keys of the target's index. Raises PublishError, TrustError."""
        if self.keys is None and not any(name.startswith(f"{_PREFIX}KEY") for name in self.environment):
            raise PublishError(
                "there are no keys to sign the index of the shared cache with",
                cause=f"only trusted jobs write: neither --cache-keys, {_PREFIX}KEYS nor {_PREFIX}KEY_TARGETS, "
                f"_SNAPSHOT and _TIMESTAMP with {_PREFIX}ROOT are set",
                hint="--cache-from ADDRESS reads without keys; `./dev release.keys --create FOLDER` makes new ones",
            )
        named = {
            name.replace(_PREFIX, "AOTFORGE_", 1): value
            for name, value in self.environment.items()
            if name.startswith((f"{_PREFIX}KEY", f"{_PREFIX}ROOT"))
        }
        return replace(load_keys(self.keys, named), memory=self.memory / MEMORY)

    def trusted_root(self) -> bytes:
        """The root of trust of the source. Raises TrustError."""
        named = self.root or self.environment.get(f"{_PREFIX}ROOT")
        committed = self.checkout / COMMITTED_ROOT
        if not named and not committed.is_file():
            raise TrustError(
                f"there is no root of trust to check the index of the shared cache {redact_urls(self.source or '')} with",
                cause=f"neither --cache-root nor {_PREFIX}ROOT is set, and this checkout has no {COMMITTED_ROOT}",
                hint="get root.json from the cache's owner by a way that you trust, then --cache-root FILE",
            )
        return trusted_root(named or str(committed), self.checkout, {})


@dataclass
class SharedCache:
    """Objects in shared places, as `SharedObjects` in base/object_cache.py."""

    note: Callable[[str], None]
    reader: CacheReader | None = None
    writer: CacheWriter | None = None
    source: str = ""
    read: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def expect(self, kind: str, keys: Iterable[str]) -> None:
        """Requests these objects."""
        if self.reader:
            self.reader.expect((kind, key) for key in keys)

    def load(self, kind: str, key: str) -> bytes | None:
        """The verified bytes of an object."""
        data = self.reader.load((kind, key)) if self.reader else None
        if data is not None:
            self.read[kind] += 1
            if self.writer:
                self.writer.use((kind, key))
        return data

    def reject(self, kind: str, key: str, reason: str) -> None:
        """A loaded object is not a valid one."""
        self.read[kind] -= 1
        if self.reader:
            self.reader.discard((kind, key), reason)

    def wants(self, kind: str, key: str) -> bool:
        """Whether `offer` would store the object."""
        return self.writer is not None and self.writer.wants((kind, key))

    def offer(self, kind: str, key: str, data: bytes) -> None:
        """Stores an object, unless the place has it or nothing may be written."""
        if self.writer:
            self.writer.offer((kind, key), data)

    def on_refused(self, name: Name, reason: str) -> None:
        """Names the first objects that are not used."""
        self.refused.append(f"{name[0]} {name[1][:12]} {reason}")
        if self.writer:
            self.writer.replace(name)
        if len(self.refused) <= _SHOWN:
            self.note(f"shared cache {self.source}: {self.refused[-1]}; it is dropped and made again")

    def on_stopped(self, reason: str) -> None:
        """The place was given up."""
        self.note(f"shared cache {self.source} is not used any more: {reason}; the rest is made here")

    def summary(self) -> str:
        """One line for people; empty when no place was used."""
        parts = []
        if self.reader:
            size = sum(self.reader.received) / 1e6
            read = f"{sum(self.read.values())} objects, {size:.1f} MB read from {self.source}"
            parts.append(read + (f", {len(self.refused)} refused" if self.refused else ""))
        if self.writer:
            writer = self.writer
            sent = (
                f"{len(writer.sent)} objects, {sum(writer.sent) / 1e6:.1f} MB written to {writer.store.url}"
            )
            parts.append(sent + (f", {writer.skipped} not written" if writer.skipped else ""))
        return f"shared cache: {'; '.join(parts)}" if parts else ""


def shared_usage(places: CachePlaces) -> dict[str, tuple[int, int]]:
    """Objects and bytes in the source, by kind. Raises PublishError, TrustError."""
    with publish_errors():
        reader = open_reader(places.source or "")
        trusted = trusted_index(reader, places.trusted_root(), places.memory / MEMORY)
        index = load_index(reader, trusted.index.cache)
    found: dict[str, tuple[int, int]] = {}
    for (kind, _), one in index.items():
        count, size = found.get(kind, (0, 0))
        found[kind] = count + 1, size + one.size
    return found


def prune_shared(places: CachePlaces, now: datetime) -> Collection:
    """Reduces the target to its limit and removes what no index names. Raises PublishError, TrustError."""
    store, keys = open_for_publishing(places.target or ""), places.key_set()
    with publish_errors():
        return prune(store, keys, places.limit, now)


@contextmanager
def open_shared_cache(places: CachePlaces, note: Callable[[str], None]) -> Iterator[SharedCache]:
    """The shared places of a command. What was offered is in the signed index when the block has ended, also by an error, but not when
    the user has interrupted it.

    A place that cannot be read or written, or whose index cannot be trusted, is reported to `note` and not used. Raises PublishError and
    TrustError for keys and roots that are not valid, before anything slow begins.
    """
    shared = SharedCache(note)
    if places.target:
        _open_target(shared, places, open_for_publishing(places.target), places.key_set())
    if places.source:
        _open_source(shared, places, places.source)
    try:
        yield shared
    finally:
        # who interrupts a build does not wait for a server
        if shared.writer and not isinstance(sys.exception(), KeyboardInterrupt):
            _finish(shared, shared.writer)
        if text := shared.summary():
            note(text)


def _open_target(shared: SharedCache, places: CachePlaces, store: Store, keys: KeySet) -> None:
    keys.require(read_root(keys.roots[-1], "the newest root among the keys").signed)

    def load() -> CacheIndex:
        state = load_state(store, keys)
        keys.require(state.root)
        check_not_revoked(state, store.url)
        return index_to_change(store, state.index)

    try:
        index = within(places.seconds, load)
    except (TrustError, StoreError, TimeoutError) as error:
        _note_unused(shared, store.url, error, "nothing is read or written there")
        return
    shared.writer = CacheWriter(store=store, keys=keys, index=index, limit=places.limit)
    if not places.source:
        _read(shared, store, index)


def _open_source(shared: SharedCache, places: CachePlaces, address: str) -> None:
    root = places.trusted_root()
    try:
        reader = open_reader(address)

        def load() -> CacheIndex:
            return load_index(reader, trusted_index(reader, root, places.memory / MEMORY).index.cache)

        index = within(places.seconds, load)
    except (AotforgeError, StoreError, TimeoutError) as error:
        _note_unused(shared, redact_urls(address), error, "it is not used")
        return
    _read(shared, reader, index)


def _read(shared: SharedCache, reader: Reader, index: CacheIndex) -> None:
    shared.source = reader.url
    shared.reader = CacheReader(reader, index, reject=shared.on_refused, stop=shared.on_stopped)


def _finish(shared: SharedCache, writer: CacheWriter) -> None:
    began = len(writer.sent)
    try:
        within(FINISH_SECONDS * 10, lambda: writer.finish(datetime.now(UTC)))
    except (AotforgeError, StoreError, TimeoutError) as error:
        state = "some objects were" if len(writer.sent) > began else "nothing was"
        _note_unused(
            shared, writer.store.url, error, f"{state} written there; the local cache has everything"
        )


def _note_unused(shared: SharedCache, place: str, error: Exception, effect: str) -> None:
    what = error.what if isinstance(error, AotforgeError | StoreError) else "it did not answer in time"
    shared.note(f"shared cache {place}: {what}; {effect}")
