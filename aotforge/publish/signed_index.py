"""The signed index in a store as publishers read and change it: verified, changed in one step.

Files below `tuf/` have their version in their name and are never replaced, except `timestamp.json`. Its conditional
replacement makes a change visible atomically, and only one of two concurrent publishers succeeds with it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Signed, Snapshot, Targets, Timestamp

from aotforge.errors import PublishError, TrustError
from aotforge.publish.index import FOLDER, Index, make_targets, read_index
from aotforge.publish.keys import KeySet, S, metadata_errors, next_root, read_root, verify
from aotforge.publish.seen_versions import seen_versions
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import Clock, ErrorKind, Reader, Store, StoreError

TIMESTAMP = f"{FOLDER}/timestamp.json"
SIGNED_AT = "aotforge-signed-at"
"""An additional field of the timestamp role: time of signing (ISO 8601, UTC), for clients whose clock is behind."""

DAYS = {"targets": 365, "snapshot": 90, "timestamp": 90}
"""Validity of the signed index; publishing or `release.publish --renew` signs it again."""

LIMIT = 16 * 1024 * 1024
_CHANGED = "it was changed, or signed by other keys than the root names"
_DO_NOT_PUBLISH = "do not publish there before you know why; mirrors may hold a copy"
_TRIES = 20
_SECONDS = 900.0
"""For a change with all its attempts: each request ends by itself, but a server may refuse thousands."""
_EMPTY = Index(version=0, releases=())


@dataclass(frozen=True, kw_only=True)
class State:
    """Content of a store: all of its roots that follow from the trusted ones, and the index. `token` identifies the
    timestamp that was read, None for an empty store; `missing`: trusted roots that the store lacks."""

    roots: tuple[Metadata[Root], ...]
    missing: tuple[bytes, ...]
    index: Index = _EMPTY
    snapshot_version: int = 0
    timestamp_version: int = 0
    token: str | None = None

    @property
    def root(self) -> Root:
        """The newest root, of the store or of ours."""
        return self.roots[-1].signed

    @property
    def root_of_store(self) -> Root:
        """The newest root in the store, which readers use and whose keys signed the index."""
        return self.roots[max(0, len(self.roots) - len(self.missing) - 1)].signed

    @property
    def revoked(self) -> bool:
        """Whether a key that signed the index's entries is replaced by a root that the store lacks: a thief may have signed them."""
        signed, valid = (set(root.roles["targets"].keyids) for root in (self.root_of_store, self.root))
        return self.token is not None and not signed <= valid


def load_state(store: Store, keys: KeySet) -> State:
    """Checks signatures, hashes and versions, not expiry: an expired index can be renewed. An index that is older than one
    seen before is refused. Raises TrustError, StoreError, OutputError."""
    state = _verified_state(store, keys.roots)
    if keys.memory:
        seen_versions(keys.memory, keys.roots[0], store.url).check(
            (state.timestamp_version, state.snapshot_version, state.index.version), store.url
        )
    return state


def _verified_state(store: Store, known: tuple[bytes, ...]) -> State:
    roots, missing = _roots(store, known)
    found = store.load(TIMESTAMP, limit=LIMIT)
    if found is None:
        return State(roots=roots, missing=missing)
    data, token = found
    root = State(roots=roots, missing=missing).root_of_store
    timestamp = _verified(Timestamp, data, root, f"{store.url}/{TIMESTAMP}")
    snapshot = _numbered(Snapshot, timestamp.snapshot_meta, root, store)
    listed = snapshot.meta.get("targets.json")
    if listed is None:
        where = f"{store.url}/{FOLDER}/{snapshot.version}.snapshot.json"
        raise TrustError(
            f"{where} cannot be trusted: it lists no targets", cause=_CHANGED, hint=_DO_NOT_PUBLISH
        )
    targets = _numbered(Targets, listed, root, store)
    return State(
        roots=roots,
        missing=missing,
        index=read_index(targets),
        snapshot_version=snapshot.version,
        timestamp_version=timestamp.version,
        token=token,
    )


def change_index(
    store: Store,
    keys: KeySet,
    change: Callable[[Index], Index],
    *,
    now: datetime,
    renew: bool = False,
    entries: Mapping[str, str] | None = None,
    clock: Clock = time.monotonic,
) -> Index:
    """Replaces the index by `change(index)`, retrying after concurrent changes. Without a difference nothing is written,
    unless `renew`. `change` may raise to refuse. `entries`: digests by name of those that a replaced key signed and the new one may sign.
    Raises PublishError, TrustError, StoreError."""
    check_time = partial(_check_time, store, clock, clock() + _SECONDS)
    for _ in range(_TRIES):
        check_time()
        state = load_state(store, keys)
        keys.require(state.root)
        index = change(_approved(state, entries, store.url))
        if index == state.index and not state.missing and not renew and state.token:
            return index
        # an index that clients cannot read must not be signed
        read_index(make_targets(replace(index, version=state.index.version + 1), expires=now))
        try:
            _write(store, keys, state, index, now, check_time)
        except StoreError as error:
            if error.kind is not ErrorKind.EXISTS:
                raise
            continue
        written = load_state(store, keys)
        check_not_revoked(written, store.url)  # a thief may have put back what the replaced key signed
        # a store without conditional writes may have let another publisher overwrite ours
        if change(written.index) == written.index:
            return written.index
    raise PublishError(
        f"{store.url}: other publishers changed the index {_TRIES} times meanwhile",
        hint="run the same command again: everything else is in place",
    )


def check_not_revoked(state: State, url: str) -> None:
    """Raises TrustError for an index whose entries a replaced key has signed."""
    if not state.revoked:
        return
    raise TrustError(
        f"the index at {url} is signed by a key that your newest root replaces",
        cause="the key for targets was rotated since; who had the old one may have added or changed entries",
        hint="compare its entries with your records (docs/publishing.md, Keys), then `./dev release.publish --renew --to URL --entries "
        "NAME=DIGEST,...` with those that are yours; the others leave the index, which has "
        f"{_shown(state.index.entry_digests())}",
    )


def _approved(state: State, entries: Mapping[str, str] | None, url: str) -> Index:
    """The index; where a replaced key has signed it, with the approved entries alone."""
    if entries is None:
        check_not_revoked(state, url)
        return state.index
    found = state.index.entry_digests()
    for name, digest in entries.items():
        if found.get(name) != digest:
            raise PublishError(
                f"the index at {url} has no entry {name}={digest}",
                cause="it was changed meanwhile" if name in found else "it was removed, or is misspelt",
                hint=f"compare again: the entries are {_shown(found)}",
            )
    if state.revoked:
        return state.index.only(entries)
    if left := sorted(found.keys() - entries.keys()):
        raise PublishError(
            f"{', '.join(left)} cannot leave the index at {url}",
            cause="its entries are signed by keys that your newest root has",
            hint="`./dev release.yank` marks a release; after a theft, `./dev release.keys --rotate targets` first",
        )
    return state.index


def _shown(entries: Mapping[str, str]) -> str:
    return ",".join(f"{name}={digest}" for name, digest in entries.items()) or "''"


def _check_time(store: Store, clock: Clock, end: float) -> None:
    if clock() > end:
        raise StoreError(
            ErrorKind.UNAVAILABLE,
            f"{store.url}: the index could not be changed in {_SECONDS / 60:.0f} minutes",
            cause="the server answers slowly, or refuses each version as one that exists",
            hint="run the same command again: everything else is in place",
        )


def _write(
    store: Store, keys: KeySet, state: State, index: Index, now: datetime, check_time: Callable[[], None]
) -> None:
    # readers use the old root until they have the new one: keys of every root that is not yet in the store sign as well
    recent = state.roots[-1 - len(state.missing) :] if state.token else state.roots[-1:]
    sign = partial(_signed, keys, recent)
    put = partial(_put_numbered, store, sign, check_time)
    until = {role: (now + timedelta(days=days)).replace(microsecond=0) for role, days in DAYS.items()}
    if not state.token:
        _put_roots(store, state)
    targets = put(
        state.index.version, lambda v: make_targets(replace(index, version=v), expires=until["targets"])
    )
    meta = {"targets.json": targets}
    snapshot = put(state.snapshot_version, lambda v: Snapshot(v, expires=until["snapshot"], meta=meta))
    timestamp = Timestamp(
        version=state.timestamp_version + 1,
        expires=until["timestamp"],
        snapshot_meta=snapshot,
        unrecognized_fields={SIGNED_AT: now.replace(microsecond=0).isoformat()},
    )
    store.compare_and_swap(TIMESTAMP, sign(timestamp), token=state.token)
    if state.token:
        _put_roots(store, state)


def root_name(version: int) -> str:
    """Object name of a root."""
    return f"{FOLDER}/{version}.root.json"


def put_or_compare(store: Store, name: str, data: bytes) -> bool:
    """Creates an object unless it exists; False when it then has other bytes. Raises StoreError."""
    try:
        store.put_if_absent(name, data)
    except StoreError as error:
        if error.kind is not ErrorKind.EXISTS:
            raise
    return read_small(store, name, limit=LIMIT) == data


def _put_roots(store: Store, state: State) -> None:
    for data in state.missing:
        name = root_name(Metadata[Root].from_bytes(data).signed.version)
        if not put_or_compare(store, name, data):
            raise StoreError(ErrorKind.EXISTS, f"{store.url}/{name} exists with other bytes")


def _put_numbered(
    store: Store,
    sign: Callable[[Signed], bytes],
    check_time: Callable[[], None],
    before: int,
    make: Callable[[int], Signed],
) -> MetaFile:
    """Puts the next free version: interrupted or beaten publishers leave unreferenced versions behind."""
    for version in range(before + 1, before + 1001):
        check_time()
        made = make(version)
        data = sign(made)
        name = f"{FOLDER}/{version}.{made.type}.json"
        try:
            store.put_if_absent(name, data)
        except StoreError as error:
            if error.kind is ErrorKind.EXISTS:
                continue
            raise
        if read_small(store, name, limit=LIMIT) != data:
            raise PublishError(
                f"{store.url}/{name} was read back with other bytes than were sent",
                cause="the server or the way to it is faulty",
                hint="the index is unchanged; run the same command again",
            )
        return MetaFile.from_data(version, data, ["sha256"])
    raise PublishError(
        f"{store.url}/{FOLDER} holds a thousand unreferenced versions",
        hint="remove those above the newest snapshot's",
    )


def _signed(keys: KeySet, roots: tuple[Metadata[Root], ...], signed: Signed) -> bytes:
    metadata: Metadata[Any] = Metadata(signed)
    counted = {s.public_key.keyid: s for root in roots for s in keys.allowed(signed.type, root.signed)}
    for _, signer in sorted(counted.items()):
        metadata.sign(signer, append=True)
    return metadata.to_bytes()


def _roots(reader: Reader, known: tuple[bytes, ...]) -> tuple[tuple[Metadata[Root], ...], tuple[bytes, ...]]:
    """The trusted roots and those of the store that follow; the trusted ones that the store lacks."""
    roots = [read_root(known[0], "the trusted root")]
    for data in known[1:]:
        roots.append(next_root(roots[-1], data, "a root among the keys"))
    first = version = roots[0].signed.version
    while True:
        name = root_name(version)
        try:
            data = read_small(reader, name, limit=LIMIT)
        except StoreError as error:
            if error.kind is not ErrorKind.MISSING:
                raise
            return tuple(roots), known[version - first :]
        if version - first >= len(known):
            roots.append(next_root(roots[-1], data, f"{reader.url}/{name}"))
        elif data != known[version - first]:
            raise TrustError(
                f"{reader.url}/{name} is another root than ours",
                cause="this place belongs to another index, or was tampered with",
                hint="check the address and the keys",
            )
        version += 1


def _numbered(kind: type[S], meta: MetaFile, root: Root, reader: Reader) -> S:
    name = f"{FOLDER}/{meta.version}.{kind.type}.json"
    return _verified(kind, read_small(reader, name, limit=LIMIT), root, f"{reader.url}/{name}", meta)


def _verified(kind: type[S], data: bytes, root: Root, where: str, meta: MetaFile | None = None) -> S:
    with metadata_errors(f"{where} cannot be trusted", _CHANGED, _DO_NOT_PUBLISH):
        if meta:
            meta.verify_length_and_hashes(data)
        signed = verify(kind, data, root).signed
        if meta and signed.version != meta.version:
            raise RepositoryError(f"its version is {signed.version}")
        return signed
