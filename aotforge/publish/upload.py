"""Publication of a release: check locally, upload and read back every file, change the index.

Also other changes of an index: yanking, renewed signatures, copies to a mirror.
"""

import hashlib
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tuf.api.metadata import Metadata, Timestamp

from aotforge.base.progress import OnProgress, byte_counter
from aotforge.errors import PublishError, ReleaseError, UnknownNameError, suggest
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import Index, IndexedFile, IndexedRelease, Publication, Yank
from aotforge.publish.keys import KeySet, metadata_errors
from aotforge.publish.repository import LIMIT, TIMESTAMP, StoreRepository, change_index, put_or_compare
from aotforge.publish.stores.store import (
    Content,
    ExistsError,
    MissingError,
    ObjectStore,
    OnBytes,
    Reader,
    StoreError,
)
from aotforge.publish.trust import TrustedIndex
from aotforge.release.model import MANIFEST
from aotforge.release.release import Release

_AGAIN = "run the same command again"
_NEW_REVISION = "publish a new revision (revision in manifests/release.yaml)"


def publish_release(
    folder: Path,
    store: ObjectStore,
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
        name, path = f"{release.name}/{file.name}", folder / file.name
        upload_object(store, name, path, file, publication, on_bytes=sending)
    index = change_index(store, keys, lambda index: _add_release(index, release, now), now=now)
    publication.index_version = index.version
    return publication


def upload_object(
    store: ObjectStore,
    name: str,
    content: Content | None,
    file: IndexedFile,
    stats: Publication,
    *,
    on_bytes: OnBytes,
) -> None:
    """Creates one object unless it exists, and reads it back. Without content it must exist.

    Raises PublishError for other bytes; StoreError.
    """
    try:
        if sent := store.size(name) is None:
            if content is None:
                raise StoreError(f"{store.url}/{name} was removed during the upload", hint=_AGAIN)
            store.put_if_absent(name, content)
            on_bytes(file.size)
    except (ExistsError, MissingError):
        # another publisher of the same release may have completed this object
        if store.size(name) is None:
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
        cause="the file changed during the upload, or the server or the way to it is faulty",
        hint="the release is not in the index; remove this object, then run the same command again",
    )


def _other_bytes(store: ObjectStore, name: str) -> PublishError:
    return PublishError(
        f"{store.url}/{name} exists with other bytes",
        cause="another release was published, or begun, under this name; objects are never replaced",
        hint=_NEW_REVISION,
    )


def _check_published(index: Index, release: IndexedRelease) -> None:
    if published := index.release(release.name):
        theirs, ours = (set(described.files) for described in (published, release))
        if differing := sorted({file.name for file in theirs ^ ours}):
            more = " and more" if len(differing) > 3 else ""
            raise PublishError(
                f"{release.name} is published with other files: {', '.join(differing[:3])}{more}",
                cause="it was built again with other inputs, or files were added",
                hint=f"{_NEW_REVISION}; published objects are never replaced",
            )


def _iso(time: datetime) -> str:
    return time.replace(microsecond=0).isoformat()


def _add_release(index: Index, release: IndexedRelease, now: datetime) -> Index:
    """The index with `release`. Raises PublishError when it has other files under that name."""
    _check_published(index, release)
    if index.release(release.name):
        return index
    files = tuple(sorted(release.files, key=lambda file: file.name))
    new = replace(release, files=files, published=_iso(now))
    return replace(index, releases=tuple(sorted((*index.releases, new), key=lambda release: release.name)))


def _plan_upload(store: ObjectStore, release: IndexedRelease, stats: Publication) -> None:
    """Adds the objects that publishing would send or find. Raises PublishError when one has another size."""
    existing = store.names(f"{release.name}/")
    for file in release.files:
        name = f"{release.name}/{file.name}"
        if existing.get(name, file.size) != file.size:
            raise _other_bytes(store, name)
        (stats.found if name in existing else stats.sent).append(name)
        stats.bytes_sent += 0 if name in existing else file.size


def read_release_folder(
    folder: Path, *, allow_development: bool = False, on_bytes: OnBytes = lambda count: None
) -> IndexedRelease:
    """Compares every file with the sums, compressed and uncompressed. Published objects are public for ever:
    a folder with a note or a key is refused. Files are in the order of publication: the manifest, which
    names all the others, first, SHA256SUMS last. Raises PublishError."""
    try:
        release, tars = Release.open(folder), read_sums(folder / TAR_SUMS)
        contents = release.contents
        if not allow_development and (contents.development or not contents.verified):
            unverified = () if contents.verified else ("not all of its images were executed and compared",)
            raise PublishError(
                f"{release.name} is a development build: {'; '.join((*contents.development, *unverified))}",
                hint="build it in its container and with verification, or pass --allow-development, which "
                "marks it in the index",
            )
        release.check_files()
        files = [_file(path, release, tars, on_bytes) for path in sorted(folder.iterdir())]
    except ReleaseError as error:
        raise PublishError(error.what, cause=error.cause, hint=error.hint) from error
    order = {MANIFEST: -1, SUMS: 1}
    files.sort(key=lambda file: (order.get(file.name, 0), file.name))
    return IndexedRelease(
        name=release.name,
        files=tuple(files),
        published="",
        verified=contents.verified,
        development=contents.development,
    )


def _file(path: Path, release: Release, tars: dict[str, str], on_bytes: OnBytes) -> IndexedFile:
    name, size, tar = path.name, path.stat().st_size, None
    if name.endswith(".tar.gz") and (archive := parse_artifact_name(name)):
        tar = release.read(archive).tar
        # installations refuse an archive that is not listed among the uncompressed ones
        if tars.get(name.removesuffix(".gz")) != tar.sha256:
            raise PublishError(
                f"{path} differs from {TAR_SUMS}",
                cause="it was changed after the build, or does not belong to this release",
                hint="build the release again; the folder must be as the build made it",
            )
    on_bytes(size)
    return IndexedFile(name=name, size=size, sha256=release.sums.get(name) or sha256_file(path), tar=tar)


def yank_release(
    store: ObjectStore, keys: KeySet, name: str, *, reason: str, now: datetime, undo: bool = False
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
        mark = None if undo else Yank(reason=reason.strip(), time=_iso(now))
        if mark and release.yanked and release.yanked.reason == mark.reason:
            return index
        changed = replace(release, yanked=mark)
        return replace(index, releases=tuple(changed if r is release else r for r in index.releases))

    return change_index(store, keys, change, now=now)


def renew_index(store: ObjectStore, keys: KeySet, *, now: datetime) -> Index:
    """Signs the index again with the newest keys: before it expires, after a rotation.

    Raises PublishError, TrustError.
    """
    return change_index(store, keys, lambda index: index, now=now, renew=True)


def mirror(
    reader: Reader,
    trusted: TrustedIndex,
    store: ObjectStore,
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
    with tempfile.TemporaryDirectory(prefix="aotforge-mirror-") as scratch:
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


def _check_not_newer(store: ObjectStore, trusted: TrustedIndex) -> str | None:
    """The token of the mirror's timestamp. Raises PublishError for a newer index: it is never rolled back."""
    stored, ours = store.load(TIMESTAMP, limit=LIMIT), trusted.metadata[TIMESTAMP]
    if stored is None:
        return None
    with metadata_errors(
        f"{store.url}/{TIMESTAMP} is not a valid timestamp", hint="remove it, then mirror again"
    ):
        theirs, own = (Metadata[Timestamp].from_bytes(data).signed.version for data in (stored[0], ours))
    if theirs > own or (theirs == own and stored[0] != ours):
        raise PublishError(
            f"{store.url} has index {theirs}, the source has {own}",
            cause="source and mirror were mixed up, or the mirror is also published to directly",
            hint="mirror in the other direction, or to another place",
        )
    return stored[1]


def _copy_index(trusted: TrustedIndex, store: ObjectStore) -> None:
    """Roots from the trusted one on, then the rest, timestamp last."""
    names = [name for name in trusted.metadata if name != TIMESTAMP]
    for name in sorted(names, key=lambda name: (".root." not in name, len(name), name)):
        if not put_or_compare(store, name, trusted.metadata[name]):
            raise PublishError(
                f"{store.url}/{name} exists with other bytes",
                cause="another index was published there",
                hint="mirror to another place",
            )
    store.compare_and_swap(TIMESTAMP, trusted.metadata[TIMESTAMP], token=_check_not_newer(store, trusted))
