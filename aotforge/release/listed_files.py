"""Files of a release, compared with those that its SHA256SUMS lists; no signature is checked."""

from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError, listed
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums
from aotforge.formats.wheel import is_own_project, parse_wheel_name
from aotforge.release.model import (
    COVERAGE,
    MANIFEST,
    PROVENANCE,
    RELEASE_JSON,
    SBOM,
    SIGNATURE,
    SIGSTORE,
    UNSIGNED,
)

FETCH = "fetch the release again"
DOCUMENTS: Mapping[str, str] = {
    COVERAGE: "size, calls served and bytes of a first call, as tables",
    SUMS: "SHA-256 of every file",
    SIGNATURE: "Ed25519 signature of SHA256SUMS",
    TAR_SUMS: "SHA-256 of the uncompressed archives: what another build must give",
    RELEASE_JSON: "everything about every image and file, for programs",
    MANIFEST: "verdicts of the virtual GPU",
    SBOM: "bill of materials, CycloneDX",
    PROVENANCE: "SLSA provenance, signed",
    SIGSTORE: "the same as a Sigstore bundle, for cosign",
}
"""Files of a release other than archives and wheels, with their use."""


def is_release_file(name: str) -> bool:
    """True for the names of a release's files. A folder with others is not one: of `--find-links FOLDER` pip takes source archives,
    whose code it executes, and the links of pages."""
    wheel = parse_wheel_name(name)
    own_wheel = wheel is not None and is_own_project(wheel.name)
    return own_wheel or name in DOCUMENTS or parse_artifact_name(name) is not None


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
