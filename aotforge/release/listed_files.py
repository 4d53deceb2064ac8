"""Files of a release, compared with those that its SHA256SUMS lists; no signature is checked."""

from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError, listed
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import SUMS, read_sums
from aotforge.release.model import UNSIGNED

FETCH = "fetch the release again"


def check_listed_files(folder: Path) -> dict[str, str]:
    """Every file is listed, with its digest, and no other is there. Returns the digests by name. Raises ReleaseError."""
    sums = read_sums(folder / SUMS)
    present = {path.name for path in folder.iterdir()} - {SUMS} - UNSIGNED
    if odd := sorted(present ^ set(sums)):
        what = f"{listed(odd)} {'is' if len(odd) == 1 else 'are'} in the folder or in {SUMS}, not in both"
        cause = "a file was added or lost, or the download is not complete"
        raise ReleaseError(f"{folder}: {what}", cause=cause, hint=FETCH)
    check_digests(folder, sums, hint=FETCH)
    return sums


def check_digests(folder: Path, sums: Mapping[str, str], *, hint: str) -> None:
    """Raises ReleaseError for a file that is missing or not the listed one."""
    for name, digest in sums.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            what = f"{folder / name} is missing or not the file that {SUMS} names"
            raise ReleaseError(what, cause="it was altered or damaged", hint=hint)
