"""Release folders for publication, with what the index states of them."""

from pathlib import Path

from aotforge.errors import PublishError, ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums
from aotforge.publish.index import IndexedFile, LocalRelease
from aotforge.publish.stores.store import OnBytes
from aotforge.release.model import MANIFEST
from aotforge.release.release import Release


def read_release_folder(
    folder: Path, *, allow_development: bool = False, on_bytes: OnBytes = lambda count: None
) -> LocalRelease:
    """Compares every file with the sums, compressed and uncompressed. Published objects are public for ever:
    a folder with a note or a key is refused. Raises PublishError."""
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
    return LocalRelease(
        name=release.name,
        folder=folder,
        files=tuple(files),
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
