"""A build's folder becomes a release that can be published: with its documents, its sums, and a signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aotforge.base.files import link_or_copy, output_errors, output_lock, staged_folder
from aotforge.errors import ReleaseError, SignatureError
from aotforge.formats.archive import GZIP_LEVEL, sha256_file
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums, sums_bytes
from aotforge.plan.model import Plan
from aotforge.release.attestations import (
    DOCUMENT,
    MANIFEST,
    PROVENANCE,
    SBOM,
    SIGNATURE,
    UNSIGNED,
    FileFacts,
    Origin,
)
from aotforge.release.provenance import statement_json
from aotforge.release.reader import read_release
from aotforge.release.release_json import release_json_bytes
from aotforge.release.sbom import sbom_json
from aotforge.release.signing import check_sums, open_statement, sign_statement, sign_sums


@dataclass(frozen=True, kw_only=True)
class FinalizedRelease:
    """A finished release: its folder, every file in it, and whether it was made now (False: it was there, with the same bytes)."""

    folder: Path
    files: tuple[FileFacts, ...]
    signed: bool
    fresh: bool


def finalize_release(
    build: Path,
    *,
    extra: Sequence[Path] = (),
    origin: Origin,
    plans: Sequence[Plan],
    output: Path,
    key: Ed25519PrivateKey | None,
    builder: str,
    approve: Callable[[Path], None] = lambda folder: None,
) -> FinalizedRelease:
    """Makes `output`/<release> of the folder that a build made and `extra` archives (the Windows runtime).

    The files are the build's own, linked where the file system can; SHA256SUMS covers them and the documents, the signature covers
    SHA256SUMS. `approve` sees the folder before anybody else does; when it raises, what was there stays.
    Raises ReleaseError for a folder that is no whole release, OutputError, OutputBusyError.
    """
    archives, manifest = build_files(build)
    tars = read_sums(build / TAR_SUMS)
    folder = output / origin.release
    with output_lock(folder), staged_folder(folder) as staged, output_errors(staged):
        for path in (*archives, *extra):
            link_or_copy(path, staged / path.name)
        described = [_facts(path, tars, origin) for path in sorted(staged.iterdir())]
        _write(staged / TAR_SUMS, sums_bytes({**tars, **{path.name: sha256_file(path) for path in extra}}))
        _write(staged / SBOM, sbom_json(origin, described))
        document = release_json_bytes(
            origin, plans=plans, packs=read_release(build), manifest=manifest, files=described
        )
        _write(staged / DOCUMENT, document)
        _write(staged / SUMS, sums_bytes({path.name: sha256_file(path) for path in staged.iterdir()}))
        files = tuple(_facts(path, tars, origin) for path in sorted(staged.iterdir()))
        if key is not None:
            _write(staged / SIGNATURE, sign_sums((staged / SUMS).read_bytes(), key))
            _write(staged / PROVENANCE, sign_statement(statement_json(origin, files, builder=builder), key))
        approve(staged)
        fresh = not _same(staged, folder)
    return FinalizedRelease(folder=folder, files=files, signed=key is not None, fresh=fresh)


def check_finalized_release(folder: Path, key: Ed25519PublicKey | None) -> tuple[str, ...]:
    """Holds every file of a finished release against SHA256SUMS and, with `key`, the sums against the signature and the provenance
    statement. Returns the names of the files. Raises ReleaseError, SignatureError."""
    sums = read_sums(folder / SUMS)
    present = {path.name for path in folder.iterdir()} - {SUMS} - UNSIGNED
    if present != set(sums):
        odd = sorted(present ^ set(sums))
        raise ReleaseError(
            f"{folder}: {', '.join(odd[:5])} {'is' if len(odd) == 1 else 'are'} in the folder or in {SUMS}, not in both",
            cause="a file was added or lost, or the download is not complete",
            hint="fetch the release again",
        )
    for name, digest in sums.items():
        if sha256_file(folder / name) != digest:
            raise ReleaseError(
                f"{folder / name} is not the file that {SUMS} names",
                cause="it was altered or damaged",
                hint="fetch it again",
            )
    if key is not None:
        _check_signatures(folder, sums, key)
    return tuple(sums)


def build_files(build: Path) -> tuple[list[Path], Mapping[str, object]]:
    """The files of a build's folder that a release takes over, and its MANIFEST.json. Raises ReleaseError."""
    sums = read_sums(build / SUMS)
    for name, digest in sums.items():
        if not (build / name).is_file() or sha256_file(build / name) != digest:
            raise ReleaseError(
                f"{build / name} is missing or not the file that {SUMS} names",
                hint="build again: ./dev build",
            )
    manifest = json.loads((build / MANIFEST).read_bytes())
    if not isinstance(manifest, dict):
        raise ReleaseError(f"{build / MANIFEST} is no manifest")
    return [build / name for name in sorted(sums) if name != TAR_SUMS], manifest


def _check_signatures(folder: Path, sums: Mapping[str, str], key: Ed25519PublicKey) -> None:
    for name in (SIGNATURE, PROVENANCE):
        if not (folder / name).is_file():
            raise SignatureError(
                f"{folder} has no {name}",
                cause="the release was not signed, or the file was lost",
                hint="fetch the release again",
            )
    check_sums((folder / SUMS).read_bytes(), (folder / SIGNATURE).read_bytes(), key)
    statement = json.loads(open_statement((folder / PROVENANCE).read_bytes(), key))
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if subjects != dict(sums) | {SUMS: sha256_file(folder / SUMS)}:
        raise SignatureError(
            f"{folder / PROVENANCE} speaks of other files than {SUMS}",
            cause="files of two releases were mixed",
            hint="fetch the release again",
        )


def _facts(path: Path, tars: Mapping[str, str], origin: Origin) -> FileFacts:
    tar = tars.get(path.name.removesuffix(".gz"), "") if path.name.endswith(".tar.gz") else ""
    compressor = f"gzip, level {GZIP_LEVEL}, zlib {origin.tools.zlib}" if tar else ""
    if path.suffix == ".zip":
        compressor = f"zip, zlib {origin.tools.zlib}"
    return FileFacts(
        name=path.name,
        size=path.stat().st_size,
        sha256=sha256_file(path),
        tar_sha256=tar,
        compressor=compressor,
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)


def _same(one: Path, other: Path) -> bool:
    if not other.is_dir():
        return False
    names = {path.name for path in one.iterdir()}
    return names == {path.name for path in other.iterdir()} and all(
        (one / name).stat().st_ino == (other / name).stat().st_ino
        or sha256_file(one / name) == sha256_file(other / name)
        for name in names
    )
