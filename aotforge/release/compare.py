"""Differences between two releases: origin, tools, packs, images, resources, verdicts, files."""

import hashlib
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.errors import ReleaseError

_RESOURCES = ("vgpr", "agpr", "sgpr", "vgpr_spills", "lds_bytes", "scratch_bytes", "occupancy")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`kind`: origin, toolchain, pack, image, resource, verdict, file or member. Empty `before` or `after`: absent."""

    kind: str
    name: str
    before: str
    after: str


def compare_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Differences of two release.json documents, in the order of the kinds above."""
    found = _fields("origin", _flat(before["origin"]), _flat(after["origin"]))
    found += _fields("toolchain", _flat(before["toolchain"]), _flat(after["toolchain"]))
    packs = [{pack["name"]: pack for pack in one["packs"]} for one in (before, after)]
    found += _fields("pack", *({name: _pack(pack) for name, pack in one.items()} for one in packs))
    for name in sorted(packs[0].keys() & packs[1].keys()):
        found += _images(packs[0][name], packs[1][name])
    return (*found, *_fields("file", _files(before), _files(after)))


def compare_archives(before: Path, after: Path) -> tuple[Difference, ...]:
    """Members that differ between two .tar, .tar.gz or .zip files: in content, mode, kind or place. Raises ReleaseError."""
    return tuple(_fields("member", _members(before), _members(after)))


def _images(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    both = [
        {job["label"]: image for image in pack["images"] for job in image["jobs"]} for pack in (before, after)
    ]
    common = sorted(both[0].keys() & both[1].keys())
    digests = [{label: image["digest"] for label, image in images.items()} for images in both]
    resources = [
        {f"{label} {name}": str(images[label]["resources"][name]) for label in common for name in _RESOURCES}
        for images in both
    ]
    verdicts = [
        {label: (images[label]["verdict"] or {}).get("outcome", "not executed") for label in common}
        for images in both
    ]
    return _fields("image", *digests) + _fields("resource", *resources) + _fields("verdict", *verdicts)


def _pack(pack: Mapping[str, Any]) -> str:
    return f"profile {pack['profile']} for {', '.join(pack['archs'])}: {len(pack['images'])} images"


def _files(document: Mapping[str, Any]) -> dict[str, str]:
    """By name without the release's, so that files of two releases pair."""
    release = f"-{document['release']}-"
    return {
        file["name"].replace(
            release, "-<release>-"
        ): f"{file['size']} bytes, {file['tar_sha256'] or file['sha256']}"
        for file in document["files"]
    }


def _fields(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(kind=kind, name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any, at: str = "") -> dict[str, str]:
    if not isinstance(value, dict):
        return {at: str(value)}
    items = ((f"{at}.{name}" if at else str(name), part) for name, part in value.items())
    return {name: text for place, part in items for name, text in _flat(part, place).items()}


def _members(path: Path) -> dict[str, str]:
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                return {
                    info.filename: f"{info.external_attr >> 16:o} {info.date_time} "
                    + hashlib.sha256(archive.read(info)).hexdigest()
                    for info in archive.infolist()
                }
        with tarfile.open(path) as tar:
            return {info.name: _member(tar, info) for info in tar}
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}", hint="fetch or build it again") from error


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> str:
    stream = tar.extractfile(info) if info.isreg() else None
    content = hashlib.sha256(stream.read()).hexdigest() if stream else info.linkname
    return f"{info.mode:o} {info.type.decode()} {info.mtime} {info.uid}:{info.gid} {info.size} {content}"
