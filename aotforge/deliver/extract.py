"""Extracts a release folder: runtime and image packs into one prefix, as in PyTorch."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name

_TOP = "aotriton"


@dataclass(frozen=True, kw_only=True)
class ExtractedRelease:
    """`prefix` holds include/ and lib/ with aotriton.images; `texts` are the asm archives; `names` all archives."""

    prefix: Path
    texts: tuple[Path, ...]
    names: tuple[str, ...]


def extract_release(release: Path, packs: Sequence[str], folder: Path) -> ExtractedRelease:
    """Unpack the newest runtime tarball and the packs' images of a release folder into `folder`. Raises ReleaseError."""
    archives = {path: name for path in sorted(release.iterdir()) if (name := parse_artifact_name(path.name))}
    runtimes = [path for path, name in archives.items() if name.kind == "runtime"]
    runtimes.sort(key=lambda path: archives[path].rocm_version)
    if not runtimes:
        raise ReleaseError(
            f"{release} holds no runtime tarball",
            cause="it is no release folder",
            hint="name the folder that `invoke build` printed",
        )
    images = [_one(release, ArtifactName(release="*", kind="images", pack=pack)) for pack in packs]
    texts = tuple(_one(release, ArtifactName(release="*", kind="asm", pack=pack)) for pack in packs)
    for tarball in (runtimes[-1], *images):
        unpack(tarball, folder)
    names = tuple(path.name for path in (runtimes[-1], *images, *texts))
    return ExtractedRelease(prefix=folder / _TOP, texts=texts, names=names)


def unpack(tarball: Path, folder: Path) -> None:
    """What a release's tarballs hold: folders, files, and links to a neighbour. Anything else raises ReleaseError.

    By hand: the first releases of Python 3.11 have no extraction filters.
    """
    try:
        with tarfile.open(tarball) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise ReleaseError(f"{tarball} has a member that leaves its folder: {member.name}")
                _place(tar, member, folder / path)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise ReleaseError(f"{tarball} cannot be unpacked: {error}") from error


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member) if member.isfile() else None
    if content is not None:
        target.write_bytes(content.read())
        target.chmod(member.mode & 0o777)
    elif member.issym() and "/" not in member.linkname and member.linkname not in {"", ".", ".."}:
        target.symlink_to(member.linkname)
    else:
        raise ReleaseError(f"{tar.name!s} has a member that no release has: {member.name}")


def _one(release: Path, pattern: ArtifactName) -> Path:
    found = sorted(release.glob(str(pattern)))
    if len(found) != 1:
        raise ReleaseError(
            f"{release} holds {len(found)} files {pattern}",
            cause="the release was built for other chips, or several releases share the folder",
            hint="build it for these chips",
        )
    return found[0]
