"""What a release was made of, so that a build with nothing changed need not make it again.

The stamp lies beside the release folder (`.<release>.stamp.json`): it is this machine's memory, not part of
the release. It holds the files' digests, so one that is older than the folder never passes for the folder's
own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import zstandard

from aotforge.base.architectures import Architecture
from aotforge.base.files import write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.formats.archive import sha256_file
from aotforge.plan.model import Plan
from aotforge.release.model import PlatformTag, Release, ReleaseFile
from aotforge.release.release_manifest import ReleaseManifest

_FORMAT = 2


def inputs_digest(
    manifest: ReleaseManifest,
    plans: Iterable[Plan],
    runtime: Path,
    *,
    epoch: int,
    licence: bytes = b"",
    chips: Mapping[str, Architecture] | None = None,
    judges: str = "",
) -> str:
    """SHA-256 of everything that can change a release's bytes: manifest, plans, the runtime's files, time,
    our own code, the figures of `chips`, which occupancy is derived from, and `judges`, the digest of what verified the
    images, empty for an unverified release.

    A plan fixes its images and their assembly text through its job keys, so no image is read for it.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode("utf-8")
            digest.update(len(data).to_bytes(8, "little") + data)

    add(str(_FORMAT), manifest.model_dump_json(), str(epoch), licence, judges)
    add(zstandard.__version__, str(zstandard.ZSTD_VERSION), version("auditwheel"))
    for plan in plans:
        add(repr(plan))
    for arch, chip in sorted((chips or {}).items()):
        add(arch, chip.model_dump_json())
    for path in sorted(runtime.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else sha256_file(path) if path.is_file() else ""
        add(path.relative_to(runtime).as_posix(), content)
    add(group_digest("release"))
    return digest.hexdigest()


def find_release(manifest: ReleaseManifest, output: Path, inputs: str) -> Release | None:
    """The release in `output` when it was made of exactly these inputs and every file still has its digest;
    else None.
    """
    folder = output / manifest.name
    try:
        stamp = json.loads(_stamp(folder).read_text(encoding="utf-8"))
        if (stamp["format"], stamp["inputs"]) != (_FORMAT, inputs):
            return None
        release = _release(stamp["release"], folder)
        if {path.name for path in folder.iterdir()} != {file.name for file in release.files}:
            return None
        digests: dict[int, str] = {}  # by inode: the runtime's tarballs are links to one file
        for file in release.files:
            path = folder / file.name
            inode = path.stat().st_ino
            digests[inode] = digests.get(inode) or sha256_file(path)
            if path.is_symlink() or digests[inode] != file.sha256:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no stamp, or one of another time: make the release again
    return replace(release, fresh=False)


def stamped_files(manifest: ReleaseManifest, output: Path) -> frozenset[str]:
    """Names of the files that the last build put into the release folder; none when no stamp tells."""
    folder = output / manifest.name
    try:
        stamp = json.loads(_stamp(folder).read_text(encoding="utf-8"))
        return frozenset(file.name for file in _release(stamp["release"], folder).files)
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def write_stamp(release: Release, inputs: str) -> None:
    """Remembers what `release` was made of."""
    fields = asdict(release)
    del fields["folder"], fields["fresh"]
    text = json.dumps({"format": _FORMAT, "inputs": inputs, "release": fields}, indent=1, sort_keys=True)
    write_atomic(_stamp(release.folder), (text + "\n").encode("utf-8"))


def _stamp(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.stamp.json"


def _release(fields: Mapping[str, object], folder: Path) -> Release:
    files, platform, development = fields["files"], fields["platform"], fields["development"]
    if not (isinstance(files, list) and isinstance(platform, dict) and isinstance(development, list)):
        raise TypeError("not a stamp")
    platform["reasons"] = tuple(platform["reasons"])
    return Release(
        name=str(fields["name"]),
        folder=folder,
        files=tuple(ReleaseFile(**file) for file in files),
        platform=PlatformTag(**platform),
        development=tuple(development),
        verified=fields["verified"] is True,
        fresh=True,
    )
