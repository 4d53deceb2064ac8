"""Changes of an index besides publication: yanking, renewed signatures, copies to a mirror."""

import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tuf.api.metadata import Metadata, Timestamp

from aotforge.base.progress import OnProgress, byte_counter
from aotforge.errors import PublishError, UnknownNameError, suggest
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import Index, Publication, Yank
from aotforge.publish.keys import KeySet, metadata_errors
from aotforge.publish.repository import LIMIT, TIMESTAMP, change_index, put_or_compare
from aotforge.publish.stores.store import Reader, Store
from aotforge.publish.trust import TrustedIndex
from aotforge.publish.upload import publish_errors, upload_object


def yank_release(
    store: Store, keys: KeySet, name: str, *, reason: str, now: datetime, undo: bool = False
) -> Index:
    """Marks a release in the index as one that must not be installed, or removes the mark; its files stay.

    Raises UnknownNameError, PublishError, TrustError.
    """
    if not undo and not reason.strip():
        hint = "--reason TEXT, which is shown to users who install it"
        raise PublishError(f"{name} cannot be yanked without a reason", hint=hint)

    def change(index: Index) -> Index:
        release = index.release(name)
        if release is None:
            known = [release.name for release in index.releases]
            cause = suggest(name, known) if known else "it has none"
            raise UnknownNameError(f"{store.url} has no release {name}", cause=cause)
        mark = None if undo else Yank(reason=reason.strip(), time=now.replace(microsecond=0).isoformat())
        if mark and release.yanked and release.yanked.reason == mark.reason:
            return index
        changed = replace(release, yanked=mark)
        return replace(index, releases=tuple(changed if r is release else r for r in index.releases))

    with publish_errors():
        return change_index(store, keys, change, now=now)


def renew_index(store: Store, keys: KeySet, *, now: datetime) -> Index:
    """Signs the index again with the newest keys: before it expires, after a rotation.

    Raises PublishError, TrustError.
    """
    with publish_errors():
        return change_index(store, keys, lambda index: index, now=now, renew=True)


def mirror(
    reader: Reader,
    trusted: TrustedIndex,
    store: Store,
    *,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Publication:
    """Copies every release of a verified index, then the index itself, unchanged: readers trust the same
    keys.

    Existing objects are read and compared. Raises PublishError, TrustError.
    """
    releases = trusted.index.releases
    names = ", ".join(release.name for release in releases)
    done = Publication(release=names, url=store.url, index_version=trusted.index.version)
    files = [(f"{release.name}/{file.name}", file) for release in releases for file in release.files]
    count = byte_counter(on_progress, "copying", 3 * sum(file.size for _, file in files))
    with publish_errors(), tempfile.TemporaryDirectory(prefix="aotforge-mirror-") as scratch:
        _check_not_newer(store, trusted)
        for name, file in files:
            if store.size(name) is not None:
                upload_object(store, name, None, file, done, on_bytes=count)
                continue
            path = fetch_file(reader, name, file, Path(scratch), on_bytes=count)
            upload_object(store, name, path, file, done, on_bytes=count)
            path.unlink()
        _copy_index(trusted, store)
    return done


def _check_not_newer(store: Store, trusted: TrustedIndex) -> str | None:
    """The token of the mirror's timestamp. Raises PublishError for a newer index: it is never rolled back."""
    found, ours = store.load(TIMESTAMP, limit=LIMIT), trusted.metadata[TIMESTAMP]
    if found is None:
        return None
    with metadata_errors(
        f"{store.url}/{TIMESTAMP} is not a valid timestamp", hint="remove it, then mirror again"
    ):
        theirs, own = (Metadata[Timestamp].from_bytes(data).signed.version for data in (found[0], ours))
    if theirs > own or (theirs == own and found[0] != ours):
        raise PublishError(
            f"{store.url} has index {theirs}, the source has {own}",
            cause="source and mirror were mixed up, or the mirror is also published to directly",
            hint="mirror in the other direction, or to another place",
        )
    return found[1]


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].split(".")[0])


def _copy_index(trusted: TrustedIndex, store: Store) -> None:
    """Roots from the trusted one on, then the rest, timestamp last."""
    roots = sorted((name for name in trusted.metadata if ".root." in name), key=_number)
    others = [name for name in trusted.metadata if name not in {TIMESTAMP, *roots}]
    for name in (*roots, *others):
        if not put_or_compare(store, name, trusted.metadata[name]):
            raise PublishError(
                f"{store.url}/{name} exists with other bytes",
                cause="another index was published there",
                hint="mirror to another place",
            )
    store.compare_and_swap(TIMESTAMP, trusted.metadata[TIMESTAMP], token=_check_not_newer(store, trusted))
