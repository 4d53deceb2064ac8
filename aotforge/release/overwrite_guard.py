"""Checks that refuse to overwrite a release with one that would not reproduce its content."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import OutputError, listed
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS
from aotforge.release.model import MANIFEST
from aotforge.release.release_manifest import ReleaseManifest
from aotforge.release.stamp import stamped_files


def check_replaceable(manifest: ReleaseManifest, output: Path, packs: Iterable[str]) -> None:
    """Refuses when `<output>/<release>` holds image packs other than `packs`, or files that no build made.

    A release replaces an earlier folder completely: another arch's pack or a signature would be deleted. Call it before
    anything is compiled or staged. Raises OutputError.
    """
    folder = output / manifest.name
    elsewhere = f"choose another --output, or remove {folder}"
    with output_errors(folder):
        if not folder.exists() and not folder.is_symlink():
            return
        if folder.is_symlink() or not folder.is_dir():
            raise OutputError(
                f"{folder} is not a folder, and this build would delete it",
                hint=f"move it away, or {elsewhere}",
            )
        names = sorted(path.name for path in folder.iterdir())
    # by name, because a build that is killed after the move into place writes no stamp
    archives = {name: found for name in names if (found := parse_artifact_name(name))}
    own = {
        name: found.pack
        for name, found in archives.items()
        if found.release == manifest.name and found.kind != "windows"
    }
    wanted = {"", *packs}
    if kept := [pack for pack in dict.fromkeys(own.values()) if pack not in wanted]:
        raise OutputError(
            f"{folder} holds image packs that this build would delete: {', '.join(kept)}",
            cause="an earlier build of the same release was for other architectures",
            hint=f"name all architectures in one build (--arch a,b), or {elsewhere}",
        )
    known = {SUMS, TAR_SUMS, MANIFEST, *stamped_files(manifest, output)}
    if unknown := [name for name in names if name not in {*own, *known}]:
        raise OutputError(
            f"{folder} holds files that no build made and that this one would delete: {listed(unknown)}",
            cause="they were added by hand, a signature for instance",
            hint=f"move them away, or {elsewhere}",
        )


def check_not_verified(manifest: ReleaseManifest, output: Path) -> None:
    """Refuses to replace a verified release by an unverified one. Raises OutputError."""
    folder = output / manifest.name
    try:
        verified = json.loads((folder / MANIFEST).read_bytes())["verified"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return  # no release there, or one that cannot pass for verified
    if verified:
        raise OutputError(
            f"{folder} holds a release whose images have all passed verification, and this build would replace it by an unverified one",
            cause="--no-verify, and something has changed since that release was made",
            hint=f"build without --no-verify, or choose another --output, or remove {folder}",
        )
