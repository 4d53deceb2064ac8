"""The signed list of a shared cache: SHA-256, size and last use of every object, by kind and key.

It is the object `cache/index.json`, a targets role of TUF that is signed by itself: an old list names valid
objects only, for a key is that of all inputs, so that neither snapshot nor timestamp is needed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, TargetFile, Targets

from aotforge.errors import PublishError
from aotforge.publish.keys import KeySet, metadata_errors, read_root, verify
from aotforge.publish.stores.reading import read_small
from aotforge.publish.stores.store import ErrorKind, Reader, Store, StoreError

LIST = "cache/index.json"
LIST_LIMIT = 64 * 2**20
OBJECTS = "objects"
_OBJECT_LIMIT = 2**31
_EXPIRES = timedelta(days=365)
_TRIES = 20
_PATH = re.compile(r"([a-z]{1,20}-[0-9]{1,4})/([0-9a-f]{64})")
_SHA256 = re.compile(r"[0-9a-f]{64}")

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


def is_object_name(name: str) -> bool:
    """False for files of other programs, in a folder of Git for instance."""
    folder, _, digest = name.partition("/")
    return folder == OBJECTS and _SHA256.fullmatch(digest) is not None


KeyList = Mapping[Name, SharedObject]


def load_list(reader: Reader, root: Root) -> KeyList:
    """The list of a place, signed by the targets keys of `root`. Raises TrustError, StoreError."""
    data = read_small(reader, LIST, limit=LIST_LIMIT)
    return _objects(_verified(data, root, reader.url, expired=False))


def change_list(store: Store, keys: KeySet, change: Callable[[KeyList], KeyList]) -> KeyList:
    """Replaces the list by `change(list)`, retrying after concurrent changes; an expired one is renewed.

    Raises PublishError without the key of the list, TrustError, StoreError.
    """
    root = read_root(keys.roots[-1], "the newest root among the keys").signed
    keys.require(root, ("targets",))
    for _ in range(_TRIES):
        before, version, token = {}, 0, None
        if found := store.load(LIST, limit=LIST_LIMIT):
            targets, token = _verified(found[0], root, store.url, expired=True), found[1]
            before, version = _objects(targets), targets.version
        if (after := change(before)) == before:
            return before
        try:
            store.compare_and_swap(LIST, _signed(after, version + 1, keys, root), token=token)
        except StoreError as error:
            if error.kind is not ErrorKind.EXISTS:
                raise
        else:
            return after
    what = f"{store.url}: other commands changed the list of the shared cache {_TRIES} times meanwhile"
    raise PublishError(what, hint="run the same command again")


def _signed(objects: KeyList, version: int, keys: KeySet, root: Root) -> bytes:
    targets = {}
    for (kind, key), one in objects.items():
        path = f"{kind}/{key}"
        targets[path] = TargetFile(one.size, {"sha256": one.sha256}, path, {"custom": one.used})
    expires = (datetime.now(UTC) + _EXPIRES).replace(microsecond=0)
    metadata: Metadata[Any] = Metadata(Targets(version=version, expires=expires, targets=targets))
    for signer in keys.allowed("targets", root):
        metadata.sign(signer, append=True)
    return metadata.to_bytes()


def _verified(data: bytes, root: Root, url: str, *, expired: bool) -> Targets:
    what, cause = f"{url}/{LIST} cannot be trusted", "it was changed, or signed by keys that the root lacks"
    with metadata_errors(what, cause, "build without this cache, and inform its owner"):
        targets = verify(Targets, data, root).signed
        if targets.is_expired() and not expired:
            raise RepositoryError("it is expired")
        return targets


def _objects(targets: Targets) -> dict[Name, SharedObject]:
    with metadata_errors("the list of the shared cache is not valid", "it is of another version of aotforge"):
        return dict(map(_object, targets.targets.values()))


def _object(target: TargetFile) -> tuple[Name, SharedObject]:
    path, sha256, used = _PATH.fullmatch(target.path), target.hashes.get("sha256", ""), target.custom
    if not path or not _SHA256.fullmatch(sha256) or target.length > _OBJECT_LIMIT or type(used) is not int:
        raise ValueError(f"the entry {target.path[:80]!r} has other fields")
    return (path[1], path[2]), SharedObject(sha256=sha256, size=target.length, used=used)
