"""Reader of release folders for publication: SHA256SUMS, the files that it lists, signatures."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aotforge.errors import PublishError
from aotforge.formats.sums import SUMS, TAR_SUMS, parse_sums
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.formats.untrusted_tar import NoSink, UnsafeArchiveError, file_chunks, read_archive
from aotforge.publish.index import FILE_NAME, RELEASE_NAME, IndexedFile, LocalRelease
from aotforge.publish.stores.store import OnBytes
from aotforge.release.layout import check_names
from aotforge.release.listed_files import is_release_file
from aotforge.release.model import MANIFEST, UNSIGNED

_T = TypeVar("_T")


def read_release_folder(
    folder: Path, *, allow_development: bool = False, on_bytes: OnBytes = lambda count: None
) -> LocalRelease:
    """Reads every file once and compares it with the sums, compressed and uncompressed. Raises
    PublishError."""
    manifest = _read(folder / MANIFEST, _manifest)
    name = str(manifest["release"])
    development = tuple(map(str, manifest.get("development", ())))
    verified = manifest.get("verified") is True
    if not allow_development and (development or not verified):
        reasons = (*development, *(() if verified else ("not all of its images were executed and compared",)))
        raise PublishError(
            f"{name} is a development build: {'; '.join(reasons)}",
            hint="build it in its container and with verification, or pass --allow-development; the index then marks it",
        )
    sums, tars = _read(folder / SUMS, parse_sums), _read(folder / TAR_SUMS, parse_sums)
    paths = _paths(folder)
    # published objects are public for ever: a private key or a note left in the folder must not be one
    if unlisted := [path for path in paths if path.name not in {*sums, *UNSIGNED, SUMS}]:
        raise PublishError(
            f"{unlisted[0]} is not listed in {SUMS}",
            cause="it does not belong to the release",
            hint="move it away, then publish again",
        )
    if odd := [path for path in paths if not is_release_file(path.name)]:
        raise _refused(f"{odd[0]} has not the name of a release's file")
    files = [_file(path, sums, tars, on_bytes) for path in paths]
    if missing := sorted({*sums} - {file.name for file in files}):
        raise _refused(f"{folder}: {SUMS} lists {missing[0]}, which is missing")
    order = {MANIFEST: -1, SUMS: 1}
    files.sort(key=lambda file: (order.get(file.name, 0), file.name))
    return LocalRelease(
        name=name, folder=folder, files=tuple(files), verified=verified, development=development
    )


def _refused(what: str, cause: str = "") -> PublishError:
    hint = "build the release again; the folder must be as the build made it"
    return PublishError(what, cause=cause, hint=hint)


def _manifest(text: str) -> dict[str, Any]:
    manifest = parse_json(text)
    if not isinstance(manifest, dict) or not re.fullmatch(RELEASE_NAME, str(manifest.get("release"))):
        raise ValueError("names no release")
    return manifest


def _read(path: Path, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(read_regular(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise PublishError(
            f"{path}: {reason}",
            cause="this is not a release folder",
            hint="name a folder that `./dev build` made, e.g. releases/dist/0.11.2b-r1",
        ) from None
    except ValueError as error:
        raise _refused(f"{path}: {error}") from None


def _paths(folder: Path) -> list[Path]:
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]  # without locks
    for path in paths:
        if not path.is_file() or not re.fullmatch(FILE_NAME, path.name):
            raise _refused(f"{path} is not a plain file, and a release holds nothing else")
    return paths


def _file(path: Path, sums: dict[str, str], tars: dict[str, str], on_bytes: OnBytes) -> IndexedFile:
    tar = None
    try:
        if path.name.endswith(".tar.gz"):
            check = check_names(path.name)
            facts = read_archive(file_chunks(path), NoSink(), on_bytes=on_bytes, on_entry=check)
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
    # installations refuse an archive that is not listed among the uncompressed ones
    for expected, found, listing in (
        (sums.get(path.name, digest), digest, SUMS),
        (tar and tars.get(path.name.removesuffix(".gz")), tar and tar.sha256, TAR_SUMS),
    ):
        if expected != found:
            cause = "it was changed after the build, or does not belong to this release"
            raise _refused(f"{path} differs from {listing}", cause)
    return IndexedFile(name=path.name, size=size, sha256=digest, tar=tar)
