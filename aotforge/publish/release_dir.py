"""A release folder as build and release leave it: SHA256SUMS, what it lists, and what is signed with a key beside them; nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aotforge.errors import PublishError
from aotforge.formats.sums import SUMS, TAR_SUMS, parse_sums
from aotforge.formats.untrusted_tar import NoSink, UnsafeArchiveError, read_archive
from aotforge.publish.index import FILE_NAME, RELEASE_NAME
from aotforge.publish.index_model import IndexedFile, LocalRelease
from aotforge.publish.stores.store import read_chunks
from aotforge.release.attestations import MANIFEST, UNSIGNED

_REBUILD = "build the release again; the folder must be as the build left it"


def read_release_folder(
    folder: Path, *, allow_development: bool = False, on_bytes: Callable[[int], None] | None = None
) -> LocalRelease:
    """Reads everything in the folder once and compares it with the sums, compressed and uncompressed. Raises PublishError."""
    manifest = _manifest(folder)
    name = str(manifest["release"])
    development = tuple(map(str, manifest.get("development", ())))
    verified = manifest.get("verified") is True
    if not allow_development and (development or not verified):
        reasons = "; ".join(
            (*development, *(() if verified else ("its images were not all executed and compared",)))
        )
        raise PublishError(
            f"{name} is a development build: {reasons}",
            hint="build it in its container and with verification, or say --allow-development; the index then says so too",
        )
    sums, tars = _sums(folder / SUMS), _sums(folder / TAR_SUMS)
    paths = _paths(folder)
    # what is published is public and stays so: a key or a note that somebody left there must not be
    if strange := [path for path in paths if path.name not in {*sums, *UNSIGNED, SUMS}]:
        raise PublishError(
            f"{strange[0]} is not listed in {SUMS}",
            cause="it does not belong to the release",
            hint="move it away, then publish again",
        )
    files = [_file(path, sums, tars, on_bytes) for path in paths]
    if missing := sorted({*sums} - {file.name for file in files}):
        raise PublishError(f"{folder}: {SUMS} lists {missing[0]}, which is not there", hint=_REBUILD)
    first_last = {MANIFEST: -1, SUMS: 1}
    files.sort(key=lambda file: (first_last.get(file.name, 0), file.name))
    return LocalRelease(
        name=name, folder=folder, files=tuple(files), verified=verified, development=development
    )


def _sums(path: Path) -> dict[str, str]:
    try:
        return parse_sums(_text(path))
    except ValueError as error:
        raise PublishError(f"{path}: {error}", hint=_REBUILD) from None


def _manifest(folder: Path) -> dict[str, Any]:
    text = _text(folder / MANIFEST)
    try:
        manifest = json.loads(text)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or not re.fullmatch(RELEASE_NAME, str(manifest.get("release"))):
        raise PublishError(f"{folder / MANIFEST} names no release", hint=_REBUILD)
    return manifest


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise PublishError(
            f"{path}: {reason}",
            cause="this is no release folder",
            hint="name a folder that `invoke build` made, e.g. releases/dist/0.11.2b-r1",
        ) from None


def _paths(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue  # locks and the like
        if path.is_symlink() or not path.is_file() or not re.fullmatch(FILE_NAME, path.name):
            raise PublishError(
                f"{path} is no plain file, which is all that a release holds",
                hint=f"move it away, or {_REBUILD}",
            )
        found.append(path)
    return found


def _file(
    path: Path, sums: dict[str, str], tars: dict[str, str], on_bytes: Callable[[int], None] | None
) -> IndexedFile:
    tar = None
    try:
        if path.name.endswith(".tar.gz"):
            facts = read_archive(read_chunks(path), NoSink(), on_bytes=on_bytes)
            size, digest, tar = facts.size, facts.sha256, facts.tar
        else:
            hasher, size = hashlib.sha256(), 0
            for chunk in read_chunks(path):
                hasher.update(chunk)
                size += len(chunk)
                if on_bytes:
                    on_bytes(len(chunk))
            digest = hasher.hexdigest()
    except UnsafeArchiveError as error:
        raise PublishError(
            f"{path}: {error}", cause="it is damaged, or was not made by the build", hint=_REBUILD
        ) from None
    except OSError as error:
        raise PublishError(f"{path}: {error.strerror}", hint=_REBUILD) from None
    if sums.get(path.name, digest) != digest:
        raise PublishError(
            f"{path} is not what {SUMS} says", cause="it was changed after the build", hint=_REBUILD
        )
    # an archive that is not listed here would be refused by everyone who installs it
    if tar and tars.get(path.name.removesuffix(".gz")) != tar.sha256:
        raise PublishError(
            f"{path} is not what {TAR_SUMS} says",
            cause="it does not belong to this release",
            hint=_REBUILD,
        )
    return IndexedFile(name=path.name, size=size, sha256=digest, tar=tar)
