"""Stamps of the inputs that a release was made of: an unchanged build does not make it again.

The stamp is `.<release>.stamp.json` next to the release folder, local and not part of the release. It holds the files'
digests, so a stamp that is older than the folder does not match.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import zstandard
from pydantic import TypeAdapter

from aotforge.base.architectures import Architecture
from aotforge.base.files import write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.formats.archive import sha256_file
from aotforge.plan.model import Plan
from aotforge.release.model import Release
from aotforge.release.release_manifest import ReleaseManifest

_FORMAT = 2


def inputs_digest(
    manifest: ReleaseManifest,
    plans: Iterable[Plan],
    runtime: Path,
    *,
    epoch: int,
    licence: bytes = b"",
    architectures: Mapping[str, Architecture] | None = None,
    verifier: str = "",
) -> str:
    """SHA-256 of everything that can change a release's bytes: manifest, plans, runtime files, time, own sources,
    `architectures` (occupancy derives from them), and `verifier`, the verifier's digest, empty for unverified releases.

    A plan determines its images and their assembly text through its job keys, so no image is read for it.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode("utf-8")
            digest.update(len(data).to_bytes(8, "little") + data)

    add(str(_FORMAT), manifest.model_dump_json(), str(epoch), licence, verifier)
    add(zstandard.__version__, str(zstandard.ZSTD_VERSION), version("auditwheel"))
    add(*map(repr, plans))
    for arch, properties in sorted((architectures or {}).items()):
        add(arch, properties.model_dump_json())
    for path in sorted(runtime.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else sha256_file(path) if path.is_file() else ""
        add(path.relative_to(runtime).as_posix(), content)
    add(group_digest("release"))
    return digest.hexdigest()


def find_release(manifest: ReleaseManifest, output: Path, inputs: str) -> Release | None:
    """The release in `output` when it was made of exactly these inputs and every file still has its digest, else None."""
    folder = output / manifest.name
    try:
        (stamp_format, stamp_inputs), release = _read_stamp(folder)
        if (stamp_format, stamp_inputs) != (_FORMAT, inputs):
            return None
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
        return None  # no stamp, or one of another version: make the release again
    return release


def stamped_files(manifest: ReleaseManifest, output: Path) -> frozenset[str]:
    """Names of the files that the last build put into the release folder; none without a stamp."""
    try:
        return frozenset(file.name for file in _read_stamp(output / manifest.name)[1].files)
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def write_stamp(release: Release, inputs: str) -> None:
    """Records the digest of the inputs that `release` was made of."""
    fields = asdict(release)
    del fields["folder"], fields["fresh"]
    text = json.dumps({"format": _FORMAT, "inputs": inputs, "release": fields}, indent=1, sort_keys=True)
    write_atomic(_stamp(release.folder), (text + "\n").encode("utf-8"))


def _stamp(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.stamp.json"


def _read_stamp(folder: Path) -> tuple[tuple[object, object], Release]:
    """Format and inputs, and the stamped release. Raises OSError, ValueError, KeyError, TypeError."""
    stamp = json.loads(_stamp(folder).read_bytes())
    fields = stamp["release"] | {"folder": folder, "fresh": False}
    return (stamp["format"], stamp["inputs"]), TypeAdapter(Release).validate_python(fields)
