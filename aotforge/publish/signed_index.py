"""The signed index in a store, as its publisher sees it: read, checked, changed in one step.

Every file below `tuf/` has its version in its name and is never replaced, but `timestamp.json`: putting a new one in the place of the very one that
was read is what makes a change visible, all of it at once, and what two publishers cannot both do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Signed, Snapshot, Targets, Timestamp
from tuf.api.serialization import DeserializationError

from aotforge.errors import PublishError, TrustError
from aotforge.publish.index import make_targets, read_index
from aotforge.publish.index_model import Index
from aotforge.publish.keys import KeySet, next_root, read_root
from aotforge.publish.stores.store import ErrorKind, Reader, Store, StoreError, read_small

FOLDER = "tuf"
TIMESTAMP = f"{FOLDER}/timestamp.json"
SIGNED_AT = "aotforge-signed-at"
"""A field of the timestamp role beyond the specification: when it was signed (ISO 8601, UTC), for clients whose clock is behind."""

DAYS = {"targets": 365, "snapshot": 90, "timestamp": 90}
"""How long the index counts after it was signed; publishing or `release.renew` signs it again."""

LIMIT = 16 * 1024 * 1024
_TRIES = 20
_S = TypeVar("_S", Snapshot, Targets, Timestamp)


@dataclass(frozen=True, kw_only=True)
class State:
    """What a store holds: all of its roots that follow from ours, and the index; `token` stands for the timestamp that was read, None
    when nothing is published. `missing`: roots of ours that the store has not got yet.
    """

    roots: tuple[Metadata[Root], ...]
    missing: tuple[bytes, ...]
    index: Index
    snapshot_version: int
    timestamp_version: int
    token: str | None

    @property
    def root(self) -> Root:
        """The newest root, the store's or ours."""
        return self.roots[-1].signed


def load_state(store: Store, known: tuple[bytes, ...]) -> State:
    """Reads and checks signatures, hashes and versions, not expiry: an expired index can be renewed. `known`: roots that are trusted, oldest
    first. Raises TrustError, StoreError.
    """
    roots, missing = _roots(store, known)
    found = store.load(TIMESTAMP, limit=LIMIT)
    if found is None:
        empty = Index(version=0, releases=())
        return State(
            roots=roots, missing=missing, index=empty, snapshot_version=0, timestamp_version=0, token=None
        )
    data, token = found
    # readers go by the newest root that is there, so what is there must be signed by its keys
    root = roots[max(0, len(roots) - len(missing) - 1)].signed
    timestamp = _checked(Timestamp, data, root, store, TIMESTAMP)
    snapshot = _numbered(Snapshot, timestamp.snapshot_meta, root, store)
    targets = _numbered(Targets, snapshot.meta["targets.json"], root, store)
    return State(
        roots=roots, missing=missing, index=read_index(targets), snapshot_version=snapshot.version,
        timestamp_version=timestamp.version, token=token,
    )  # fmt: skip


def change_index(
    store: Store, keys: KeySet, change: Callable[[Index], Index], *, now: datetime, renew: bool = False
) -> Index:
    """Puts `change(index)` in the place of the index, however many others do the same; nothing is written when it changes nothing, unless
    `renew`. `change` may raise to refuse. Raises PublishError, TrustError, StoreError.
    """
    for _ in range(_TRIES):
        state = load_state(store, keys.roots)
        keys.require(state.root)
        index = change(state.index)
        if index == state.index and not state.missing and not renew and state.token:
            return index
        # what no client would understand must not be signed
        read_index(make_targets(replace(index, version=state.index.version + 1), expires=now))
        try:
            _write(store, keys, state, index, now)
        except StoreError as fault:
            if fault.kind is not ErrorKind.EXISTS:
                raise
            continue
        written = load_state(store, keys.roots).index
        if (
            change(written) == written
        ):  # else a store without conditional writes let another publisher put his over ours
            return written
    raise PublishError(
        f"{store.url}: other publishers changed the index {_TRIES} times meanwhile",
        hint="run the same command again: everything else is in place",
    )


def _write(store: Store, keys: KeySet, state: State, index: Index, now: datetime) -> None:
    # until readers have a new root they go by the old one: whoever's key counted in any root that is not everywhere yet signs as well
    recent = state.roots[-1 - len(state.missing) :] if state.token else state.roots[-1:]
    if not state.token:
        _put_roots(store, state)
    version, targets = _put_numbered(
        store, keys, recent, state.index.version, lambda v: make_targets(replace(index, version=v), expires=_until("targets", now))
    )  # fmt: skip
    meta = {"targets.json": _meta(version, targets)}
    snapshot_version, snapshot = _put_numbered(
        store, keys, recent, state.snapshot_version, lambda v: Snapshot(version=v, expires=_until("snapshot", now), meta=meta)
    )  # fmt: skip
    timestamp = Timestamp(
        version=state.timestamp_version + 1, expires=_until("timestamp", now), snapshot_meta=_meta(snapshot_version, snapshot),
        unrecognized_fields={SIGNED_AT: now.replace(microsecond=0).isoformat()},
    )  # fmt: skip
    store.compare_and_swap(TIMESTAMP, _signed(timestamp, keys, recent), token=state.token)
    if state.token:
        _put_roots(store, state)


def _put_roots(store: Store, state: State) -> None:
    for data in state.missing:
        version = Metadata[Root].from_bytes(data).signed.version
        name = f"{FOLDER}/{version}.root.json"
        try:
            store.put_if_absent(name, data)
        except StoreError as fault:
            if fault.kind is not ErrorKind.EXISTS or read_small(store, name, limit=LIMIT) != data:
                raise


def _put_numbered(
    store: Store, keys: KeySet, roots: tuple[Metadata[Root], ...], before: int, make: Callable[[int], Signed]
) -> tuple[int, bytes]:
    """Puts the next version that is free: publishers that were killed or beaten leave numbers behind that nothing refers to."""
    for version in range(before + 1, before + 1001):
        made = make(version)
        data = _signed(made, keys, roots)
        try:
            store.put_if_absent(f"{FOLDER}/{version}.{made.type}.json", data)
        except StoreError as fault:
            if fault.kind is not ErrorKind.EXISTS:
                raise
        else:
            _check_written(store, f"{FOLDER}/{version}.{made.type}.json", data)
            return version, data
    raise PublishError(
        f"{store.url}/{FOLDER} holds a thousand versions that nothing refers to",
        hint="remove those above the newest snapshot's",
    )


def _check_written(store: Store, name: str, data: bytes) -> None:
    if read_small(store, name, limit=LIMIT) != data:
        raise PublishError(
            f"{store.url}/{name} was read back with other bytes than were sent",
            cause="the server or the way to it is faulty",
            hint="the index is as it was; run the same command again",
        )


def _signed(signed: Signed, keys: KeySet, roots: tuple[Metadata[Root], ...]) -> bytes:
    metadata: Metadata[Any] = Metadata(signed)
    counted = {s.public_key.keyid: s for root in roots for s in keys.allowed(signed.type, root.signed)}
    for _, signer in sorted(counted.items()):
        metadata.sign(signer, append=True)
    return metadata.to_bytes()


def _meta(version: int, data: bytes) -> MetaFile:
    return MetaFile.from_data(version, data, ["sha256"])


def _until(role: str, now: datetime) -> datetime:
    return (now + timedelta(days=DAYS[role])).replace(microsecond=0)


def _roots(reader: Reader, known: tuple[bytes, ...]) -> tuple[tuple[Metadata[Root], ...], tuple[bytes, ...]]:
    roots = [read_root(known[0], "the trusted root")]
    for data in known[1:]:
        roots.append(next_root(roots[-1], data, "a root among the keys"))
    first = roots[0].signed.version
    missing: list[bytes] = []
    version = first
    while True:
        name = f"{FOLDER}/{version}.root.json"
        try:
            data = read_small(reader, name, limit=LIMIT)
        except StoreError as fault:
            if fault.kind is not ErrorKind.MISSING:
                raise
            missing = list(known[version - first :])
            break
        if version - first < len(known):
            if data != known[version - first]:
                raise TrustError(
                    f"{reader.url}/{name} is another root than ours",
                    cause="this place belongs to another index, or was tampered with",
                    hint="check the address and the keys",
                )
        else:
            roots.append(next_root(roots[-1], data, f"{reader.url}/{name}"))
        version += 1
    return tuple(roots), tuple(missing)


def _numbered(kind: type[_S], meta: MetaFile, root: Root, reader: Reader) -> _S:
    name = f"{FOLDER}/{meta.version}.{kind.type}.json"
    data = read_small(reader, name, limit=LIMIT)
    try:
        meta.verify_length_and_hashes(data)
    except RepositoryError as error:
        raise _bad(reader, name, error) from None
    signed = _checked(kind, data, root, reader, name)
    if signed.version != meta.version:
        raise _bad(reader, name, RepositoryError(f"its version is {signed.version}"))
    return signed


def _checked(kind: type[_S], data: bytes, root: Root, reader: Reader, name: str) -> _S:
    try:
        metadata: Metadata[Any] = Metadata.from_bytes(data)
        if not isinstance(metadata.signed, kind):
            raise RepositoryError(f"it is {metadata.signed.type!r} metadata")
        root.verify_delegate(kind.type, metadata.signed_bytes, metadata.signatures)
    except (DeserializationError, RepositoryError, ValueError) as failure:
        raise _bad(reader, name, failure) from None
    return metadata.signed


def _bad(reader: Reader, name: str, error: Exception) -> TrustError:
    return TrustError(
        f"{reader.url}/{name} cannot be trusted: {error}",
        cause="it was changed, or signed by other keys than the root names",
        hint="do not publish there before you know why; a copy of the place is in its mirrors",
    )
