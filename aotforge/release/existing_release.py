"""Releases in the output folder: found when their inputs are unchanged, else protected from loss.

The local stamp `.<release>.stamp.json` beside a release has its inputs and its files' digests.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import zstandard
from pydantic import TypeAdapter

from aotforge.base.architectures import Architecture
from aotforge.base.files import output_errors, write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.errors import OutputError, listed
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.untrusted_file import read_regular
from aotforge.plan.model import Plan
from aotforge.release.contents import ReleaseContents, parse_document
from aotforge.release.model import MANIFEST, UNSIGNED, AssembledRelease, ReleaseManifest
from aotforge.release.release import is_release_file

_FORMAT = 3


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
    """SHA-256 of everything that can change a release's bytes; a plan's job keys stand for its images.

    `verifier`: the verifier's digest, empty for unverified releases. Occupancy derives from `architectures`.
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


@dataclass(frozen=True, kw_only=True)
class _Stamp:
    """What a release folder was made of, and what it then had."""

    inputs: str
    release: AssembledRelease


def find_release(manifest: ReleaseManifest, output: Path, inputs: str) -> AssembledRelease | None:
    """The release in `output` if it was made of exactly these inputs and every file has its digest."""
    folder = output / manifest.name
    try:
        stamp = TypeAdapter(_Stamp).validate_json(_stamp(folder).read_bytes())
        release = replace(stamp.release, folder=folder, fresh=False)
        if stamp.inputs != inputs or {path.name for path in folder.iterdir()} != {
            f.name for f in release.files
        }:
            return None
        digests: dict[int, str] = {}  # by inode: the runtime's tarballs are links to one file
        for file in release.files:
            path = folder / file.name
            inode = path.stat().st_ino
            digests[inode] = digests.get(inode) or sha256_file(path)
            if digests[inode] != file.sha256:
                return None
    except (OSError, ValueError):
        return None  # no stamp, or one of another version: make the release again
    return release


def write_stamp(release: AssembledRelease, inputs: str) -> None:
    """Records the digest of the inputs that `release` was made of."""
    data = TypeAdapter(_Stamp).dump_json(_Stamp(inputs=inputs, release=release), indent=1)
    write_atomic(_stamp(release.folder), data + b"\n")


def _stamp(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.stamp.json"


def check_replaceable(manifest: ReleaseManifest, output: Path, packs: Iterable[str]) -> None:
    """Refuses when `<output>/<release>` holds image packs other than `packs`, or files that no build made.

    A release replaces an earlier folder completely, so this comes before compiling. Raises OutputError.
    """
    folder = output / manifest.name
    elsewhere = f"choose another --output, or remove {folder}"
    with output_errors(folder):
        if not folder.exists():
            return
        names = sorted(path.name for path in folder.iterdir())
    own = [found for name in names if (found := parse_artifact_name(name)) and found.kind != "windows"]
    wanted = {"", *packs}
    if kept := [pack for pack in dict.fromkeys(found.pack for found in own) if pack not in wanted]:
        raise OutputError(
            f"{folder} holds image packs that this build would delete: {', '.join(kept)}",
            cause="an earlier build of the same release was for other architectures",
            hint=f"name all architectures in one build (--arch a,b), or {elsewhere}",
        )
    if unknown := [name for name in names if name in UNSIGNED or not is_release_file(name)]:
        raise OutputError(
            f"{folder} holds files that no build made and that this one would delete: {listed(unknown)}",
            cause="they were added by hand, a signature for instance",
            hint=f"move them away, or {elsewhere}",
        )


def check_not_verified(manifest: ReleaseManifest, output: Path) -> None:
    """Refuses to replace a verified release by an unverified one. Raises OutputError."""
    folder = output / manifest.name
    try:
        verified = parse_document(read_regular(folder / MANIFEST), ReleaseContents).verified
    except (OSError, ValueError):
        return  # no release there, or one that cannot pass for verified
    if verified:
        raise OutputError(
            f"{folder} holds a release whose images have all passed verification, "
            "and this build would replace it by an unverified one",
            cause="--no-verify, and something has changed since that release was made",
            hint=f"build without --no-verify, or choose another --output, or remove {folder}",
        )
