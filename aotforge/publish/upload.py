"""Publication of a release: check locally, upload and read back every file, change the index."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from aotforge.base.progress import OnProgress, byte_counter
from aotforge.errors import PublishError
from aotforge.publish.index import Index, IndexedFile, IndexedRelease, LocalRelease, Publication, UploadStats
from aotforge.publish.keys import KeySet
from aotforge.publish.release_dir import read_release_folder
from aotforge.publish.repository import StoreRepository, change_index
from aotforge.publish.stores.store import Content, ErrorKind, OnBytes, Store, StoreError

_AGAIN = "run the same command again"
_NEW_REVISION = "publish a new revision (revision in manifests/release.yaml)"


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
    """Publishes the release in `folder`. Repeating it changes nothing; an interrupted publication is
    completed.

    Readers see the release with its index, after every byte was read back and compared. `dry_run` writes
    nothing. Raises PublishError when the store refuses or holds other bytes under the release's names,
    TrustError when the index in the store belongs to other keys.
    """
    total = sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) if folder.is_dir() else 0
    checking = byte_counter(on_progress, "checking", total)
    release = read_release_folder(folder, allow_development=allow_development, on_bytes=checking)
    notes = tuple(f"development build: {reason}" for reason in release.development)
    if not release.verified:
        notes += ("not every image was executed and compared",)
    with publish_errors():
        repository = StoreRepository(store, keys, now)
        keys.require(repository.root())
        repository.check_not_revoked()
        _check_published(repository.index, release)
        publication = Publication(
            release=release.name,
            url=store.url,
            index_version=repository.index.version,
            dry_run=dry_run,
            notes=notes,
        )
        if dry_run:
            _plan_upload(store, release, publication)
            return publication
        sending = byte_counter(on_progress, "sending", 2 * sum(file.size for file in release.files))
        for file in release.files:
            name, path = f"{release.name}/{file.name}", release.folder / file.name
            upload_object(store, name, path, file, publication, on_bytes=sending)
        index = change_index(store, keys, lambda index: _add_release(index, release, now), now=now)
        publication.index_version = index.version
    return publication


@contextmanager
def publish_errors() -> Iterator[None]:
    """A store's error as PublishError."""
    try:
        yield
    except StoreError as error:
        raise PublishError(error.what, cause=error.cause, hint=error.hint) from error


def upload_object(
    store: Store,
    name: str,
    content: Content | None,
    file: IndexedFile,
    stats: UploadStats,
    *,
    on_bytes: OnBytes,
) -> None:
    """Creates one object unless it exists, and reads it back. Without content it must exist.

    Raises PublishError for other bytes; StoreError.
    """
    try:
        if sent := store.size(name) is None:
            if content is None:
                raise StoreError(
                    ErrorKind.UNAVAILABLE, f"{store.url}/{name} was removed meanwhile", hint=_AGAIN
                )
            store.put_if_absent(name, content)
            on_bytes(file.size)
    except StoreError as error:
        # another publisher of the same release may have completed this object
        if error.kind not in {ErrorKind.EXISTS, ErrorKind.MISSING} or store.size(name) is None:
            raise
        sent = False
    (stats.sent if sent else stats.found).append(name)
    stats.bytes_sent += file.size if sent else 0
    digest, size = hashlib.sha256(), 0
    for chunk in store.read(name):
        digest.update(chunk)
        size += len(chunk)
        on_bytes(len(chunk))
        if size > file.size:
            break
    stats.bytes_read += size
    if (size, digest.hexdigest()) == (file.size, file.sha256):
        return
    if not sent:
        raise _other_bytes(store, name)
    raise PublishError(
        f"{store.url}/{name} was read back with other bytes than were sent",
        cause="the file changed meanwhile, or the server or the way to it is faulty",
        hint="the release is not in the index; remove this object, then run the same command again",
    )


def _other_bytes(store: Store, name: str) -> PublishError:
    return PublishError(
        f"{store.url}/{name} exists with other bytes",
        cause="another release was published, or begun, under this name; objects are never replaced",
        hint=_NEW_REVISION,
    )


def _check_published(index: Index, release: LocalRelease) -> None:
    if published := index.release(release.name):
        theirs, ours = (set(one.files) for one in (published, release))
        if differing := sorted({file.name for file in theirs ^ ours}):
            more = " and more" if len(differing) > 3 else ""
            raise PublishError(
                f"{release.name} is published with other files: {', '.join(differing[:3])}{more}",
                cause="it was built again with other inputs, or files were added",
                hint=f"{_NEW_REVISION}; published objects are never replaced",
            )


def _iso(time: datetime) -> str:
    return time.replace(microsecond=0).isoformat()


def _add_release(index: Index, release: LocalRelease, now: datetime) -> Index:
    """The index with `release`. Raises PublishError when it has other files under that name."""
    _check_published(index, release)
    if index.release(release.name):
        return index
    new = IndexedRelease(
        name=release.name,
        files=tuple(sorted(release.files, key=lambda file: file.name)),
        verified=release.verified,
        published=_iso(now),
        development=release.development,
    )
    return replace(index, releases=tuple(sorted((*index.releases, new), key=lambda release: release.name)))


def _plan_upload(store: Store, release: LocalRelease, stats: UploadStats) -> None:
    """Adds the objects that publishing would send or find. Raises PublishError when one has another size."""
    existing = store.names(f"{release.name}/")
    for file in release.files:
        name = f"{release.name}/{file.name}"
        if existing.get(name, file.size) != file.size:
            raise _other_bytes(store, name)
        (stats.found if name in existing else stats.sent).append(name)
        stats.bytes_sent += 0 if name in existing else file.size
