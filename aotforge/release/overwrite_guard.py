"""What stands where a new release shall go: nothing of it may vanish that the new one does not make again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import OutputError
from aotforge.formats.sums import SUMS, TAR_SUMS
from aotforge.release.attestations import MANIFEST
from aotforge.release.release_manifest import ReleaseManifest
from aotforge.release.stamp import stamped_files


def check_replaceable(manifest: ReleaseManifest, output: Path, packs: Iterable[str]) -> None:
    """Refuse when `<output>/<release>` holds image packs other than `packs`, or files that no build put there.

    A release replaces an earlier one as a whole, so whatever else is in the folder would be deleted: another chip's pack, a
    signature. To be asked before anything is compiled or staged. Raises OutputError.
    """
    folder = output / manifest.name
    with output_errors(folder):
        if not folder.exists() and not folder.is_symlink():
            return
        if folder.is_symlink() or not folder.is_dir():
            raise OutputError(
                f"{folder} is no folder, and this build would delete it",
                hint=f"move it away, or choose another --output, or remove {folder}",
            )
        names = sorted(path.name for path in folder.iterdir())
    wanted = set(packs)
    own = _own_names(manifest)
    kept, foreign, known = [], [], stamped_files(manifest, output)
    for name in names:
        found = own.fullmatch(name)
        if found and found["pack"]:
            kept += [found["pack"]] if found["pack"] not in wanted else []
        elif not found and name not in known:
            foreign.append(name)
    if kept:
        raise OutputError(
            f"{folder} holds image packs that this build would delete: {', '.join(dict.fromkeys(kept))}",
            cause="an earlier build of the same release was for other chips",
            hint=_HINT.format(folder=folder),
        )
    if foreign:
        raise OutputError(
            f"{folder} holds files that no build made and that this one would delete: {_listed(foreign)}",
            cause="somebody put them there, a signature for instance",
            hint=f"move them away, or choose another --output, or remove {folder}",
        )


def check_not_verified(manifest: ReleaseManifest, output: Path) -> None:
    """Refuse to put an unverified release where a verified one stands. Raises OutputError."""
    folder = output / manifest.name
    try:
        verified = json.loads((folder / MANIFEST).read_bytes())["verified"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return  # nothing there, or nothing that could pass for verified
    if verified:
        raise OutputError(
            f"{folder} holds a release whose images have all passed verification, and this build would replace it by an unverified one",
            cause="--no-verify, and something has changed since that release was made",
            hint=f"build without --no-verify, or choose another --output, or remove {folder}",
        )


_HINT = "name all chips in one build (--arch a,b), or choose another --output, or remove {folder} when nobody needs it"


def _own_names(manifest: ReleaseManifest) -> re.Pattern[str]:
    """Names of a release's files; `pack` is the image pack of those that belong to one.

    By name and not by the stamp only: a build that was killed after moving its release into place left none for it.
    """
    prefix = re.escape(f"aotriton-{manifest.name}-")
    return re.compile(
        rf"{re.escape(SUMS)}|{re.escape(TAR_SUMS)}|{re.escape(MANIFEST)}"
        rf"|{prefix}(?:images|asm)-(?P<pack>.+)\.tar\.gz|{prefix}\w+-rocm[0-9.]+-shared\.tar\.gz"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
