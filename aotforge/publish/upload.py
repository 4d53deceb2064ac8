"""Publishing a release: check everything here, put every file there and read it back, SHA256SUMS last, and then the index."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from aotforge.errors import PublishError
from aotforge.publish.index_model import Index, IndexedFile, IndexedRelease, LocalRelease, Publication
from aotforge.publish.keys import KeySet
from aotforge.publish.release_dir import read_release_folder
from aotforge.publish.signed_index import change_index, load_state
from aotforge.publish.stores.store import Content, ErrorKind, Store, StoreError

OnProgress = Callable[[str, int, int], None]
"""Told of a stage (checking, sending, downloading, unpacking) and how many bytes of how many are done in it."""


@dataclass(kw_only=True)
class UploadStats:
    """What placing objects came to, as it grows."""

    sent: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    bytes_read: int = 0
    seconds_sending: float = 0.0
    seconds_reading: float = 0.0


def publish_release(
    folder: Path,
    store: Store,
    keys: KeySet,
    *,
    now: datetime,
    dry_run: bool = False,
    allow_development: bool = False,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Publication:
    """Publishes the release in `folder`; the same again changes nothing, and one that was cut off is completed.

    Readers see the release when its index is there, after every byte of it was read back and found right. `dry_run` reads and checks, and
    writes nothing. Raises PublishError when the store refuses or holds other bytes under the release's names, TrustError when the index in
    the store is not ours.
    """
    total = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) if folder.is_dir() else 0
    release = read_release_folder(
        folder, allow_development=allow_development, on_bytes=byte_counter(on_progress, "checking", total)
    )
    with publish_errors():
        state = load_state(store, keys.roots)
        keys.require(state.root)
        _check_free(state.index, release)
        _check_foreign(store, release)
        notes = _notes(release)
        if dry_run:
            return _report(
                release, store, plan_upload(store, release), state.index.version, notes, dry_run=True
            )
        notes += store.probe().notes(store.url)
        stats = _place_all(store, release, on_progress)
        index = change_index(store, keys, lambda index: add_release(index, release, now), now=now)
    return _report(release, store, stats, index.version, notes, dry_run=False)


@contextmanager
def publish_errors() -> Iterator[None]:
    """A store's fault as PublishError."""
    try:
        yield
    except StoreError as fault:
        raise PublishError(fault.what, cause=fault.cause, hint=fault.hint) from fault


def upload_object(
    store: Store, name: str, content: Content, file: IndexedFile, stats: UploadStats,
    *, sending: Callable[[int], None], reading: Callable[[int], None],
) -> None:  # fmt: skip
    """Puts one object and reads it back, whatever the server said of it. An object of this name with the same bytes will do.
    Raises PublishError when there are other bytes; StoreError.
    """
    started = time.monotonic()
    try:
        if store.size(name) is None:
            store.put_if_absent(name, content, on_bytes=sending)
            stats.sent.append(name)
            stats.bytes_sent += file.size
        else:
            stats.found.append(name)
    except StoreError as fault:
        # another publisher of the same release may have finished this object, and with it the upload that we went on with
        if fault.kind not in {ErrorKind.EXISTS, ErrorKind.MISSING} or store.size(name) is None:
            raise
        stats.found.append(name)
    middle = time.monotonic()
    digest, size = hashlib.sha256(), 0
    for chunk in store.read(name):
        digest.update(chunk)
        size += len(chunk)
        reading(len(chunk))
    stats.bytes_read += size
    stats.seconds_sending += middle - started
    stats.seconds_reading += time.monotonic() - middle
    if (size, digest.hexdigest()) != (file.size, file.sha256):
        raise _other_bytes(store, name, ours=name in stats.sent)


def _place_all(store: Store, release: LocalRelease, on_progress: OnProgress) -> UploadStats:
    stats = UploadStats()
    total = sum(file.size for file in release.files)
    counted = byte_counter(on_progress, "sending", 2 * total)
    for file in release.files:
        path = release.folder / file.name
        upload_object(
            store, f"{release.name}/{file.name}", path, file, stats, sending=counted, reading=counted
        )
    return stats


def _other_bytes(store: Store, name: str, *, ours: bool) -> PublishError:
    if ours:
        return PublishError(
            f"{store.url}/{name} was read back with other bytes than were sent",
            cause="the file changed meanwhile, or the server or the way to it is faulty",
            hint="the release is not in the index; remove this object, then run the same command again",
        )
    return PublishError(
        f"{store.url}/{name} exists with other bytes",
        cause="another release was published, or begun, under this name; what is published is never replaced",
        hint="publish a new revision (revision in manifests/release.yaml)",
    )


def _check_free(index: Index, release: LocalRelease) -> None:
    there = index.release(release.name)
    if there and {(f.name, f.sha256) for f in there.files} != {(f.name, f.sha256) for f in release.files}:
        theirs, ours = ({f.name: f.sha256 for f in files} for files in (there.files, release.files))
        differs = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
        raise PublishError(
            f"{release.name} is published with other files: {', '.join(differs[:3])}{' and more' if len(differs) > 3 else ''}",
            cause="it was built again with other inputs, or files were added",
            hint="publish a new revision (revision in manifests/release.yaml); what is published is never replaced",
        )


def _check_foreign(store: Store, release: LocalRelease) -> None:
    ours = {f"{release.name}/{file.name}" for file in release.files}
    if foreign := sorted(set(store.names(f"{release.name}/")) - ours):
        raise PublishError(
            f"{store.url}/{foreign[0]} is no part of this release",
            cause="another build of it was begun there",
            hint="remove what does not belong, or publish a new revision",
        )


def add_release(index: Index, release: LocalRelease, now: datetime) -> Index:
    """The index with `release`. Raises PublishError when it has other files under that name."""
    _check_free(index, release)
    if index.release(release.name):
        return index
    new = IndexedRelease(
        name=release.name, files=tuple(sorted(release.files, key=lambda file: file.name)), verified=release.verified,
        published=now.replace(microsecond=0).isoformat(), development=release.development,
    )  # fmt: skip
    return replace(index, releases=tuple(sorted((*index.releases, new), key=lambda release: release.name)))


def plan_upload(store: Store, release: LocalRelease) -> UploadStats:
    """The objects that publishing would send or find. Raises PublishError when one has another size."""
    stats = UploadStats()
    there = store.names(f"{release.name}/")
    for file in release.files:
        name = f"{release.name}/{file.name}"
        if name not in there:
            stats.sent.append(name)
            stats.bytes_sent += file.size
        elif there[name] != file.size:
            raise _other_bytes(store, name, ours=False)
        else:
            stats.found.append(name)
    return stats


def _notes(release: LocalRelease) -> tuple[str, ...]:
    notes = tuple(f"development build: {reason}" for reason in release.development)
    return notes if release.verified else (*notes, "not every image was executed and compared")


def byte_counter(on_progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    """What adds up bytes and tells `on_progress`."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        on_progress(stage, done, total)

    return count


def _report(
    release: LocalRelease,
    store: Store,
    stats: UploadStats,
    version: int,
    notes: tuple[str, ...],
    *,
    dry_run: bool,
) -> Publication:
    return Publication(
        release=release.name, url=store.url, index_version=version, sent=tuple(stats.sent), found=tuple(stats.found),
        bytes_sent=stats.bytes_sent, bytes_read=stats.bytes_read, seconds_sending=stats.seconds_sending,
        seconds_reading=stats.seconds_reading, dry_run=dry_run, notes=notes,
    )  # fmt: skip
