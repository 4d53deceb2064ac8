"""Differences between two releases: origin, tools, packs, images, resources, verdicts, files."""

import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.tar_reader import Entry, UnsafeArchiveError, read_archive
from aotforge.formats.zip_archive import zip_members
from aotforge.release.contents import DescribedPack, ReleaseDescription
from aotforge.release.release import DESCRIBING, Release


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A value that differs; empty `before` or `after`: absent. `kind`: origin, pack, image, file, ..."""

    kind: str
    name: str
    before: str
    after: str


def compare_releases(before: Path, after: Path) -> tuple[Difference, ...]:
    """Differences of two release folders that are complete by their own sums. Raises ReleaseError."""
    releases = [Release.open(folder) for folder in (before, after)]
    for release in releases:
        release.check_files()
    first, other = (release.description() for release in releases)
    return (*compare_descriptions(first, other), *_fields("file", *map(_files, releases)))


def compare_descriptions(before: ReleaseDescription, after: ReleaseDescription) -> tuple[Difference, ...]:
    """Differences of two descriptions but for files, in the order of the kinds above."""
    both = (before, after)
    differences = _fields("origin", *(dict(_flat(description.origin)) for description in both))
    differences += _fields("toolchain", *(dict(_flat(asdict(description.toolchain))) for description in both))
    packs = [{pack.name: pack for pack in description.packs} for description in both]
    differences += _fields(
        "pack", *({name: _pack(pack) for name, pack in by_name.items()} for by_name in packs)
    )
    for name in sorted(packs[0].keys() & packs[1].keys()):
        differences += _images(packs[0][name], packs[1][name])
    return tuple(differences)


def compare_archives(before: Path, after: Path) -> tuple[Difference, ...]:
    """Members that differ between two .tar.gz or .zip files, in anything. Raises ReleaseError."""
    return tuple(_fields("member", _members(before), _members(after)))


def archive_digest(path: Path) -> str:
    """SHA-256 of the uncompressed tar of a .tar.gz file, of another file itself. Raises ReleaseError."""
    try:
        return read_archive(path).tar.sha256 if path.suffix == ".gz" else sha256_file(path)
    except (OSError, UnsafeArchiveError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}", hint="fetch it again") from error


def _images(before: DescribedPack, after: DescribedPack) -> list[Difference]:
    both = [{job.label: image for image in pack.images for job in image.jobs} for pack in (before, after)]
    common = sorted(both[0].keys() & both[1].keys())
    digests = [{label: image.digest for label, image in images.items()} for images in both]
    resources = [
        {
            f"{label} {name}": str(value)
            for label in common
            for name, value in vars(images[label].resources).items()
        }
        for images in both
    ]
    verdicts = [{label: images[label].outcome for label in common} for images in both]
    return _fields("image", *digests) + _fields("resource", *resources) + _fields("verdict", *verdicts)


def _pack(pack: DescribedPack) -> str:
    return f"profile {pack.profile} for {', '.join(pack.archs)}: {len(pack.images)} images"


def _files(release: Release) -> dict[str, str]:
    """Sizes and digests by name without the release's, so that files of two releases pair."""
    sizes = {name: (release.folder / name).stat().st_size for name in release.sums if name not in DESCRIBING}
    return {
        name.replace(f"-{release.name}-", "-<release>-"): f"{size} bytes, {release.sums[name]}"
        for name, size in sizes.items()
    }


def _fields(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(kind=kind, name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """The values of an object and of those in it, by name."""
    if not isinstance(value, dict):
        yield at, str(value)
        return
    for name, part in value.items():
        yield from _flat(part, f"{at}.{name}" if at else name)


def _members(path: Path) -> dict[str, str]:
    try:
        described: dict[str, str] = {}
        if path.suffix == ".zip":
            for member, data in zip_members(path):
                digest = hashlib.sha256(data).hexdigest()
                described[member.filename] = f"{member.external_attr >> 16:o} {member.date_time} {digest}"
            return described

        def describe(entry: Entry) -> None:
            info = entry.info
            content = hashlib.sha256(entry.content.read()).hexdigest() if entry.content else info.linkname
            text = f"{info.mode:o} {info.type.decode()} {info.mtime} {info.uid}:{info.gid} {info.size}"
            described[info.name] = f"{text} {content}"

        read_archive(path, describe)
        return described
    except (OSError, UnsafeArchiveError, zipfile.BadZipFile) as error:
        raise ReleaseError(f"{path} cannot be read: {error}", hint="fetch or build it again") from error
