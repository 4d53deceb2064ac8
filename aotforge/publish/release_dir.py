"""Reader of release folders for publication: every file is verified and measured once."""

import hashlib
import re
from pathlib import Path

from aotforge.errors import PublishError, ReleaseError
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums
from aotforge.formats.tar_reader import UnsafeArchiveError, file_chunks
from aotforge.publish.index import FILE_NAME, IndexedFile, LocalRelease
from aotforge.publish.stores.store import OnBytes
from aotforge.release.layout import read_release_archive
from aotforge.release.model import MANIFEST, UNSIGNED
from aotforge.release.release import Release, is_release_file


def read_release_folder(
    folder: Path, *, allow_development: bool = False, on_bytes: OnBytes = lambda count: None
) -> LocalRelease:
    """Reads every file once and compares it with the sums, compressed and uncompressed. Raises PublishError."""
    try:
        release, tars = Release.open(folder), read_sums(folder / TAR_SUMS)
    except ReleaseError as error:
        raise PublishError(error.what, cause=error.cause, hint=error.hint) from error
    contents = release.contents
    if not allow_development and (contents.development or not contents.verified):
        unverified = () if contents.verified else ("not all of its images were executed and compared",)
        raise PublishError(
            f"{release.name} is a development build: {'; '.join((*contents.development, *unverified))}",
            hint="build it in its container and with verification, or pass --allow-development; the index then marks it",
        )
    files = [_file(path, release, tars, on_bytes) for path in _paths(release)]
    order = {MANIFEST: -1, SUMS: 1}
    files.sort(key=lambda file: (order.get(file.name, 0), file.name))
    return LocalRelease(
        name=release.name,
        folder=folder,
        files=tuple(files),
        verified=contents.verified,
        development=contents.development,
    )


def _refused(what: str, cause: str = "") -> PublishError:
    hint = "build the release again; the folder must be as the build made it"
    return PublishError(what, cause=cause, hint=hint)


def _paths(release: Release) -> list[Path]:
    """The files, which are the listed ones: published objects are public for ever, a note or a key must not be one."""
    paths = [
        path for path in sorted(release.folder.iterdir()) if not path.name.startswith(".")
    ]  # without locks
    for path in paths:
        if path.name not in {*release.sums, *UNSIGNED, SUMS}:
            raise PublishError(
                f"{path} is not listed in {SUMS}",
                cause="it does not belong to the release",
                hint="move it away, then publish again",
            )
        if not path.is_file() or not re.fullmatch(FILE_NAME, path.name) or not is_release_file(path.name):
            raise _refused(f"{path} is not a file of a release")
    if missing := sorted(release.sums.keys() - {path.name for path in paths}):
        raise _refused(f"{release.folder}: {SUMS} lists {missing[0]}, which is missing")
    return paths


def _file(path: Path, release: Release, tars: dict[str, str], on_bytes: OnBytes) -> IndexedFile:
    name, tar = path.name, None
    try:
        if name.endswith(".tar.gz"):
            facts = read_release_archive(name, path, on_bytes=on_bytes)
            size, digest, tar = facts.size, facts.sha256, facts.tar
        else:
            hasher, size = hashlib.sha256(), 0
            for chunk in file_chunks(path):
                hasher.update(chunk)
                size += len(chunk)
                on_bytes(len(chunk))
            digest = hasher.hexdigest()
    except UnsafeArchiveError as error:
        raise _refused(f"{path}: {error}", "it is damaged, or was not made by the build") from None
    except OSError as error:
        raise _refused(f"{path}: {error.strerror}") from None
    changed = "it was changed after the build, or does not belong to this release"
    if release.sums.get(name, digest) != digest:
        raise _refused(f"{path} differs from {SUMS}", changed)
    # installations refuse an archive that is not listed among the uncompressed ones
    if tar and tars.get(name.removesuffix(".gz")) != tar.sha256:
        raise _refused(f"{path} differs from {TAR_SUMS}", changed)
    return IndexedFile(name=name, size=size, sha256=digest, tar=tar)
