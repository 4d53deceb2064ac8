"""The signed index in a store as publishers read and change it: python-tuf's repository over a store.

Files below `tuf/` have their version in their name and are never replaced, except `timestamp.json`. Its
conditional replacement makes a change visible atomically, and of two concurrent publishers only one succeeds.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Signed, Snapshot, Targets, Timestamp
from tuf.repository import Repository

from aotforge.errors import PublishError, TrustError
from aotforge.publish.index import FOLDER, Index, index_targets, read_index
from aotforge.publish.keys import KeySet, S, metadata_errors, next_root, read_root, verify
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import ExistsError, MissingError, ObjectStore, Reader, StoreError

TIMESTAMP = f"{FOLDER}/timestamp.json"
DAYS = {"targets": 365, "snapshot": 90, "timestamp": 90}
"""Validity of the signed index; publishing or `release.publish --renew` signs it again."""

LIMIT = 16 * 1024 * 1024
_CHANGED = "it was changed, or signed by other keys than the root names"
_DO_NOT_PUBLISH = "do not publish there before you know why; mirrors may hold a copy"
_TRIES = 20


class StoreRepository(Repository):
    """The index in a store, verified when it is opened: signatures, hashes and versions, not expiry, so that
    an expired index can be renewed. `missing_roots`: roots among our keys that the store lacks."""

    def __init__(self, store: ObjectStore, keys: KeySet, now: datetime) -> None:
        self._store, self._keys, self._now = store, keys, now.replace(microsecond=0)
        self._roots, self.missing_roots = _load_roots(store, keys.roots)
        self._metadata: dict[str, Metadata[Any]] = {Root.type: self._roots[-1]}
        self._infos: dict[str, MetaFile] = {}
        self._token: str | None = None
        if stored := store.load(TIMESTAMP, limit=LIMIT):
            data, self._token = stored
            snapshot_meta = self._verify(Timestamp, data, TIMESTAMP).snapshot_meta
            listed = self._load(Snapshot, snapshot_meta).meta.get("targets.json")
            if listed is None:
                where = f"{store.url}/{FOLDER}/{snapshot_meta.version}.snapshot.json"
                what = f"{where} cannot be trusted: it lists no targets"
                raise TrustError(what, cause=_CHANGED, hint=_DO_NOT_PUBLISH)
            self._load(Targets, listed)

    @property
    def is_new(self) -> bool:
        """Whether the store has no index yet."""
        return self._token is None

    @property
    def index(self) -> Index:
        """The index."""
        return Index(version=0, releases=()) if self.is_new else read_index(self.targets())

    @property
    def _signing_root(self) -> Root:
        """The newest root in the store: readers use it, and its keys signed the index."""
        return self._roots[max(0, len(self._roots) - len(self.missing_roots) - 1)].signed

    def check_not_revoked(self) -> None:
        """Raises TrustError for an index that a replaced key has signed: a thief may have added entries."""
        signed, valid = (set(r.roles["targets"].keyids) for r in (self._signing_root, self.root()))
        if not self.is_new and not signed <= valid:
            raise TrustError(
                f"the index at {self._store.url} is signed by a key that your newest root replaces",
                cause="the key for targets was rotated since; its holder may have added or changed entries",
                hint="compare the entries (`./dev release.list --json`) with your records; then `./dev "
                "release.publish --renew` signs them with the new key, and `./dev release.yank` marks "
                "unknown ones",
            )

    def write(self, index: Index) -> None:
        """Replaces the index. Raises PublishError, ExistsError after a concurrent change."""
        if self.is_new:
            self._put_roots()
        with self.edit_targets() as targets:
            targets.targets = index_targets(index)
        self.do_snapshot()
        self.do_timestamp()
        self._put_roots()

    def open(self, role: str) -> Metadata[Any]:
        """The metadata of a role; version 0 in a new store, which `close` increments."""
        if role not in self._metadata:
            made: Signed = {"targets": Targets(), "snapshot": Snapshot(meta={}), "timestamp": Timestamp()}[
                role
            ]
            made.version = 0
            if isinstance(made, Timestamp):
                made.snapshot_meta.version = 0
            self._metadata[role] = Metadata(made)
        return self._metadata[role]

    def close(self, role: str, md: Metadata[Any]) -> None:
        """Signs and stores the next version of a role, or the next free one: interrupted or concurrent
        publishers leave unreferenced versions behind."""
        md.signed.expires = self._now + timedelta(days=DAYS[role])
        if role == Timestamp.type:
            md.signed.version += 1
            self._store.compare_and_swap(TIMESTAMP, self._sign(md), token=self._token)
            return
        for _ in range(1000):
            md.signed.version += 1
            name, data = f"{FOLDER}/{md.signed.version}.{role}.json", self._sign(md)
            try:
                self._store.put_if_absent(name, data)
            except ExistsError:
                continue
            if read_small(self._store, name, limit=LIMIT) != data:
                raise PublishError(
                    f"{self._store.url}/{name} was read back with other bytes than were sent",
                    cause="the server or the way to it is faulty",
                    hint="the index is unchanged; run the same command again",
                )
            self._infos[role] = MetaFile.from_data(md.signed.version, data, ["sha256"])
            return
        raise StoreError(f"{self._store.url}/{FOLDER} holds a thousand unused versions")

    @property
    def targets_infos(self) -> dict[str, MetaFile]:
        """The targets metadata that was stored."""
        return {"targets.json": self._infos["targets"]}

    @property
    def snapshot_info(self) -> MetaFile:
        """The snapshot that was stored."""
        return self._infos["snapshot"]

    def _sign(self, metadata: Metadata[Any]) -> bytes:
        """Signs with the keys of the newest root, and of every root that readers may still use."""
        roots = self._roots[-1:] if self.is_new else self._roots[-1 - len(self.missing_roots) :]
        role = metadata.signed.type
        signers = {s.public_key.keyid: s for root in roots for s in self._keys.allowed(role, root.signed)}
        metadata.signatures.clear()
        for _, signer in sorted(signers.items()):
            metadata.sign(signer, append=True)
        return metadata.to_bytes()

    def _put_roots(self) -> None:
        for data in self.missing_roots:
            name = root_name(Metadata[Root].from_bytes(data).signed.version)
            if not put_or_compare(self._store, name, data):
                raise ExistsError(f"{self._store.url}/{name} exists with other bytes")

    def _load(self, kind: type[S], meta: MetaFile) -> S:
        name = f"{FOLDER}/{meta.version}.{kind.type}.json"
        return self._verify(kind, read_small(self._store, name, limit=LIMIT), name, meta)

    def _verify(self, kind: type[S], data: bytes, name: str, meta: MetaFile | None = None) -> S:
        where = f"{self._store.url}/{name} cannot be trusted"
        with metadata_errors(where, _CHANGED, _DO_NOT_PUBLISH):
            if meta:
                meta.verify_length_and_hashes(data)
            metadata = verify(kind, data, self._signing_root)
            if meta and metadata.signed.version != meta.version:
                raise RepositoryError(f"its version is {metadata.signed.version}")
            self._metadata[kind.type] = metadata
            return metadata.signed


def change_index(
    store: ObjectStore, keys: KeySet, change: Callable[[Index], Index], *, now: datetime, renew: bool = False
) -> Index:
    """Replaces the index by `change(index)`, retrying after concurrent changes. Without a difference nothing
    is written, unless `renew`, which also signs again what a replaced key has signed. `change` may raise to
    refuse. Raises PublishError, TrustError, StoreError."""
    for _ in range(_TRIES):
        repository = StoreRepository(store, keys, now)
        keys.require(repository.root())
        if not renew:
            repository.check_not_revoked()
        before = repository.index
        index = change(before)
        if index == before and not repository.missing_roots and not repository.is_new and not renew:
            return index
        read_index(Targets(targets=index_targets(index)))  # clients must be able to read it
        try:
            repository.write(index)
        except ExistsError:
            continue
        # a store without conditional writes may have let another publisher overwrite ours
        written = StoreRepository(store, keys, now).index
        if change(written) == written:
            return written
    raise PublishError(
        f"{store.url}: other publishers changed the index {_TRIES} times at the same time",
        hint="run the same command again: everything else is in place",
    )


def root_name(version: int) -> str:
    """Object name of a root."""
    return f"{FOLDER}/{version}.root.json"


def put_or_compare(store: ObjectStore, name: str, data: bytes) -> bool:
    """Creates an object unless it exists; False when it then has other bytes. Raises StoreError."""
    with suppress(ExistsError):
        store.put_if_absent(name, data)
    return read_small(store, name, limit=LIMIT) == data


def _load_roots(
    reader: Reader, known: tuple[bytes, ...]
) -> tuple[tuple[Metadata[Root], ...], tuple[bytes, ...]]:
    """The trusted roots and those of the store that follow; the trusted ones that the store lacks."""
    roots = [read_root(known[0], "the trusted root")]
    for data in known[1:]:
        roots.append(next_root(roots[-1], data, "a root among the keys"))
    first = version = roots[0].signed.version
    while True:
        name = root_name(version)
        try:
            data = read_small(reader, name, limit=LIMIT)
        except MissingError:
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
