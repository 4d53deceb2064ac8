"""A release folder read back, without trusting it: image packs, assembly texts and figures of every image."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import SUMS, read_sums
from aotforge.pack.model import ImagePack
from aotforge.release.attestations import MANIFEST
from aotforge.release.layout import TOP

_ARCHIVE = re.compile(r"aotriton-(?P<release>.+)-(?P<kind>images|asm)-(?P<pack>[^/]+)\.tar\.gz")
_HINT = "fetch the release again, or build it again"


@dataclass(frozen=True, kw_only=True)
class ReleasedPack:
    """What a release holds of one image pack. Texts and figures by image digest; `labels` are the compile jobs' names; `listed` the
    images that MANIFEST.json says something of, None for a release without one.
    """

    release: str
    pack: ImagePack
    assembly: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    resources: Mapping[str, Resources]
    listed: frozenset[str] | None = None


def read_release(folder: Path) -> tuple[ReleasedPack, ...]:
    """Every image pack of a release folder, in the packs' order. Each archive, and MANIFEST.json, is compared with SHA256SUMS first.

    Raises ReleaseError for a folder that is no release, and for an archive that is missing, altered or damaged.
    """
    sums = read_sums(folder / SUMS)
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in sums:
        parts = _ARCHIVE.fullmatch(name)
        if parts:
            found.setdefault((parts["pack"], parts["release"]), {})[parts["kind"]] = name
    if not found:
        raise ReleaseError(f"{folder} has no image packs", cause=f"{SUMS} names none", hint=_HINT)
    listed = _listed(folder, sums)
    packs = [_pack(folder, sums, pack, release, names) for (pack, release), names in sorted(found.items())]
    if listed is None:
        return tuple(packs)
    return tuple(replace(one, listed=listed.get(one.pack.name, frozenset())) for one in packs)


def _listed(folder: Path, sums: Mapping[str, str]) -> dict[str, frozenset[str]] | None:
    """Digests of the images in MANIFEST.json by pack; None for releases from before there was one."""
    path = folder / MANIFEST
    if MANIFEST not in sums and not path.exists():
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseError(
            f"{path}: {error.strerror}", cause="the release is not complete", hint=_HINT
        ) from error
    if hashlib.sha256(data).hexdigest() != sums.get(MANIFEST):
        raise ReleaseError(
            f"{path} is not the file that {SUMS} names", cause="it was altered or replaced", hint=_HINT
        )
    try:
        packs = json.loads(data)["packs"]
        return {str(pack["name"]): frozenset(str(row["digest"]) for row in pack["images"]) for pack in packs}
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"{path} is not of this format", hint=_HINT) from error


def _pack(
    folder: Path, sums: Mapping[str, str], pack: str, release: str, names: Mapping[str, str]
) -> ReleasedPack:
    for kind in ("images", "asm"):
        if kind not in names:
            raise ReleaseError(
                f"{folder} has no {kind} archive for {pack}", cause=f"{SUMS} names none", hint=_HINT
            )
    files = _members(folder / names["images"], sums[names["images"]], f"{TOP}/lib/aotriton.images/{pack}/")
    texts = _members(folder / names["asm"], sums[names["asm"]], f"{TOP}/share/aotriton/asm/{pack}/")
    labels, resources = _figures(folder / names["asm"], texts.pop("resources.json", b""))
    return ReleasedPack(
        release=release,
        pack=ImagePack(name=pack, files=files),
        assembly={name.removesuffix(".s"): text.decode("utf-8", "replace") for name, text in texts.items()},
        labels=labels,
        resources=resources,
    )


def _members(path: Path, digest: str, below: str) -> dict[str, bytes]:
    """The files below a folder of a tarball, by what follows the folder in their names."""
    try:
        if sha256_file(path) != digest:
            raise ReleaseError(
                f"{path} is not the file that {SUMS} names", cause="it was altered or replaced", hint=_HINT
            )
        with tarfile.open(path, "r:gz") as tar:
            found = {}
            for info in tar:
                stream = tar.extractfile(info) if info.isreg() and info.name.startswith(below) else None
                if stream is not None:
                    found[info.name.removeprefix(below)] = stream.read()
            return found
    except OSError as error:
        raise ReleaseError(
            f"{path}: {error.strerror or error}", cause="the release is not complete", hint=_HINT
        ) from error
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError, EOFError) as error:
        raise ReleaseError(f"{path}: {error}", cause="the archive is damaged", hint=_HINT) from error


def _figures(path: Path, data: bytes) -> tuple[dict[str, tuple[str, ...]], dict[str, Resources]]:
    """Labels and resources of `resources.json` by image digest."""
    labels: dict[str, tuple[str, ...]] = {}
    resources: dict[str, Resources] = {}
    names = [field.name for field in fields(Resources)]
    try:
        for row in json.loads(data)["images"]:
            digest = str(row["digest"])
            labels[digest] = (*labels.get(digest, ()), *(str(label) for label in row["labels"]))
            resources[digest] = Resources(**{name: int(row[name]) for name in names})
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"{path}: resources.json is missing or not of this format", hint=_HINT) from error
    return labels, resources
