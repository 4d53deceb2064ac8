"""Checks that refuse to overwrite a release with one that would not reproduce its content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import OutputError, listed
from aotforge.formats.sums import SUMS, TAR_SUMS
from aotforge.release.attestations import MANIFEST
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
    own = {name: found["pack"] for name in names if (found := _own_names(manifest).fullmatch(name))}
    wanted = {None, *packs}
    if kept := [pack for pack in dict.fromkeys(own.values()) if pack not in wanted]:
        raise OutputError(
            f"{folder} holds image packs that this build would delete: {', '.join(map(str, kept))}",
            cause="an earlier build of the same release was for other architectures",
            hint=f"name all architectures in one build (--arch a,b), or {elsewhere}",
        )
    if unknown := [name for name in names if name not in {*own, *stamped_files(manifest, output)}]:
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


def _own_names(manifest: ReleaseManifest) -> re.Pattern[str]:
    """File names of a release; `pack` is set for archives of an image pack.

    By name, because a build that is killed after the move into place writes no stamp.
    """
    prefix = re.escape(f"aotriton-{manifest.name}-")
    return re.compile(
        rf"{re.escape(SUMS)}|{re.escape(TAR_SUMS)}|{re.escape(MANIFEST)}"
        rf"|{prefix}(?:images|asm)-(?P<pack>.+)\.tar\.gz|{prefix}\w+-rocm[0-9.]+-shared\.tar\.gz"
    )
