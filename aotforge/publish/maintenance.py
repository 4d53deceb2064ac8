"""Changes of an index besides publishing: yanking, signing again, copying to a mirror."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from aotforge.errors import PublishError, UnknownNameError, suggest
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index_model import Index, Publication, Yank
from aotforge.publish.keys import KeySet
from aotforge.publish.signed_index import LIMIT, TIMESTAMP, change_index
from aotforge.publish.stores.store import ErrorKind, Reader, Store, StoreError, read_small
from aotforge.publish.trust import TrustedIndex
from aotforge.publish.upload import OnProgress, UploadStats, publish_errors, upload_object


def yank_release(
    store: Store, keys: KeySet, name: str, *, reason: str, now: datetime, undo: bool = False
) -> Index:
    """Marks a release in the index as one that must not be installed, or takes the mark away; its files stay where they are.
    Raises UnknownNameError, PublishError, TrustError.
    """
    if not undo and not reason.strip():
        raise PublishError(
            f"{name} cannot be yanked without a reason", hint="--reason TEXT; whoever installs it reads it"
        )

    def change(index: Index) -> Index:
        release = index.release(name)
        if release is None:
            known = [release.name for release in index.releases]
            raise UnknownNameError(
                f"{store.url} has no release {name}", cause=suggest(name, known) if known else "it has none"
            )
        mark = None if undo else Yank(reason=reason.strip(), time=now.replace(microsecond=0).isoformat())
        if mark and release.yanked and release.yanked.reason == mark.reason:
            return index
        changed = replace(release, yanked=mark)
        return replace(index, releases=tuple(changed if r is release else r for r in index.releases))

    with publish_errors():
        store.probe()
        return change_index(store, keys, change, now=now)


def renew_index(store: Store, keys: KeySet, *, now: datetime) -> Index:
    """Signs the index again, as it is, with the newest keys: before it expires, and after a key was rotated. Raises PublishError, TrustError."""
    with publish_errors():
        store.probe()
        return change_index(store, keys, lambda index: index, now=now, renew=True)


def mirror(
    reader: Reader,
    trusted: TrustedIndex,
    store: Store,
    *,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Publication:
    """Copies every release of a checked index and the index itself, unchanged, so that readers of the mirror trust the same keys.
    Files come first, the index last; what is there already is read and compared. Raises PublishError, TrustError.
    """
    stats = UploadStats()
    files = [
        (f"{release.name}/{file.name}", file) for release in trusted.index.releases for file in release.files
    ]
    total, done = 3 * sum(file.size for _, file in files), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        on_progress("copying", done, total)

    with publish_errors(), tempfile.TemporaryDirectory(prefix="aotforge-mirror-") as scratch:
        _check_newer(store, trusted)
        notes = store.probe().notes(store.url)
        for name, file in files:
            if store.size(name) is not None:
                upload_object(store, name, b"", file, stats, sending=count, reading=count)
                continue
            path = fetch_file(reader, name, file, Path(scratch), on_bytes=count)
            upload_object(store, name, path, file, stats, sending=count, reading=count)
            path.unlink()
        _copy_index(reader, trusted, store)
    return Publication(
        release=", ".join(release.name for release in trusted.index.releases), url=store.url, index_version=trusted.index.version,
        sent=tuple(stats.sent), found=tuple(stats.found), bytes_sent=stats.bytes_sent, bytes_read=stats.bytes_read,
        seconds_sending=stats.seconds_sending, seconds_reading=stats.seconds_reading, dry_run=False, notes=notes,
    )  # fmt: skip


def _version(timestamp: bytes, where: str) -> int:
    try:
        return int(json.loads(timestamp)["signed"]["version"])
    except (ValueError, KeyError, TypeError):
        raise PublishError(
            f"{where} is no timestamp",
            cause="something else was put there",
            hint="remove it, then mirror again",
        ) from None


def _check_newer(store: Store, trusted: TrustedIndex) -> str | None:
    """The token of what the mirror has; an index there that is newer than ours must not be rolled back."""
    there = store.load(TIMESTAMP, limit=LIMIT)
    if there is None:
        return None
    have, ours = (
        _version(there[0], f"{store.url}/{TIMESTAMP}"),
        _version(trusted.metadata[TIMESTAMP], "the source's"),
    )
    if have > ours or (have == ours and there[0] != trusted.metadata[TIMESTAMP]):
        raise PublishError(
            f"{store.url} has index {have}, the source has {ours}",
            cause="the places were mixed up, or the target is published to by itself",
            hint="mirror the other way round, or to another place",
        )
    return there[1]


def _copy_index(reader: Reader, trusted: TrustedIndex, store: Store) -> None:
    for name, data in sorted(_roots(reader, trusted).items(), key=_by_number):
        _copy(store, name, data)
    for name, data in trusted.metadata.items():
        if name != TIMESTAMP and ".root." not in name:
            _copy(store, name, data)
    token = _check_newer(store, trusted)
    store.compare_and_swap(TIMESTAMP, trusted.metadata[TIMESTAMP], token=token)


def _by_number(item: tuple[str, bytes]) -> int:
    return int(item[0].rpartition("/")[2].split(".")[0])


def _roots(reader: Reader, trusted: TrustedIndex) -> dict[str, bytes]:
    """Roots from the first one on: someone may begin with an older one than we did. Each is checked by whoever uses it."""
    roots = {name: data for name, data in trusted.metadata.items() if ".root." in name}
    first = min(map(_by_number, roots.items()))
    for version in range(1, first):
        name = f"tuf/{version}.root.json"
        roots[name] = read_small(reader, name, limit=LIMIT)
    return roots


def _copy(store: Store, name: str, data: bytes) -> None:
    try:
        store.put_if_absent(name, data)
    except StoreError as fault:
        if fault.kind is not ErrorKind.EXISTS:
            raise
    if read_small(store, name, limit=LIMIT) != data:
        raise PublishError(
            f"{store.url}/{name} exists with other bytes",
            cause="another index was published there",
            hint="mirror to another place",
        )
