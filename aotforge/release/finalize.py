"""Finalisation: a build's folder with documents, sums and signatures becomes a release."""

import filecmp
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aotforge.base.files import link_or_copy, output_errors, output_lock, staged_folder, write_atomic
from aotforge.base.html import render
from aotforge.errors import SignatureError
from aotforge.formats.archive import GZIP_LEVEL, sha256_file
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums, sums_bytes
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.pack.coverage import pack_coverage
from aotforge.pack.reader import open_files
from aotforge.plan.model import Plan
from aotforge.release.attestations import sbom_json, statement_json
from aotforge.release.contents import describe_release
from aotforge.release.model import (
    COVERAGE,
    PROVENANCE,
    RELEASE_JSON,
    SBOM,
    SIGNATURE,
    SIGSTORE,
    Origin,
    ReleaseFile,
)
from aotforge.release.release import FETCH, Release, ReleasedPack
from aotforge.release.signing import (
    check_sums,
    open_statement,
    sign_statement,
    sign_sums,
    sigstore_bundle,
)


@dataclass(frozen=True, kw_only=True)
class FinalizedRelease:
    """Folder and files of a finalised release. `fresh` is False when the same bytes were there already."""

    folder: Path
    files: tuple[ReleaseFile, ...]
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
    """Makes `output`/<release> of a build's folder and `extra` archives (the Windows runtime, wheels).

    When `approve`, called with the staged folder, raises, an earlier release stays. Raises ReleaseError,
    OutputError, OutputBusyError.
    """
    made = Release.open(build)
    made.check_files()
    archives = [build / name for name in sorted(made.sums) if name != TAR_SUMS]
    tars = read_sums(build / TAR_SUMS)
    folder = output / origin.release
    with output_lock(folder), staged_folder(folder) as staged, output_errors(staged):
        for path in (*archives, *extra):
            link_or_copy(path, staged / path.name)
        described = [_described(path, tars, origin) for path in sorted(staged.iterdir())]
        zips = {path.name: sha256_file(path) for path in extra if path.suffix == ".zip"}
        write_atomic(staged / TAR_SUMS, sums_bytes({**tars, **zips}))
        write_atomic(staged / SBOM, sbom_json(origin, described))
        packs = made.packs()
        resources = {one.pack.name: one.resources for one in packs}
        write_atomic(staged / COVERAGE, _coverage(origin.release, packs))
        description = describe_release(
            origin, plans=plans, resources=resources, contents=made.contents, files=described
        )
        write_atomic(staged / RELEASE_JSON, description.encoded())
        write_atomic(staged / SUMS, sums_bytes({path.name: sha256_file(path) for path in staged.iterdir()}))
        files = tuple(_described(path, tars, origin) for path in sorted(staged.iterdir()))
        if key is not None:
            write_atomic(staged / SIGNATURE, sign_sums((staged / SUMS).read_bytes(), key))
            statement = statement_json(origin, files, builder=builder)
            envelope = sign_statement(statement, key)
            write_atomic(staged / PROVENANCE, envelope)
            write_atomic(staged / SIGSTORE, sigstore_bundle(envelope, key.public_key()))
        approve(staged)
        fresh = not _same_files(staged, folder)
    return FinalizedRelease(folder=folder, files=files, signed=key is not None, fresh=fresh)


def _coverage(release: str, packs: Sequence[ReleasedPack]) -> bytes:
    """Size, served calls and bytes of the first call of each pack; equal packs give equal bytes."""
    tables = [pack_coverage(open_files(one.pack)) for one in packs]
    kernels = [kernel for table in tables for kernel in table.kernels]
    text = render("coverage.md.jinja", release=release, packs=tables, kernels=kernels)
    return f"{text.rstrip()}\n".encode()


def check_finalized_release(folder: Path, key: Ed25519PublicKey | None) -> Release:
    """Compares files with sums, and sums with `key`'s signatures. Raises ReleaseError, SignatureError."""
    release = Release.open(folder)
    release.check_files()
    if key is not None:
        _check_signatures(release, key)
    return release


def _check_signatures(release: Release, key: Ed25519PublicKey) -> None:
    folder, files = release.folder, {}
    for name in (SUMS, SIGNATURE, PROVENANCE, SIGSTORE):
        try:
            files[name] = read_regular(folder / name)
        except OSError as error:
            cause = "the release was not signed, or the file was lost"
            raise SignatureError(f"{folder} has no {name}", cause=cause, hint=FETCH) from error
    check_sums(files[SUMS], files[SIGNATURE], key)
    statement = parse_json(open_statement(files[PROVENANCE], key))
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    cause = "files of two releases were mixed"
    if subjects != dict(release.sums) | {SUMS: release.digest}:
        what = f"{folder / PROVENANCE} lists different files than {SUMS}"
        raise SignatureError(what, cause=cause, hint=FETCH)
    if files[SIGSTORE] != sigstore_bundle(files[PROVENANCE], key):
        what = f"{folder / SIGSTORE} is not the bundle of {PROVENANCE} and this key"
        raise SignatureError(what, cause=cause, hint=FETCH)


def _described(path: Path, tars: Mapping[str, str], origin: Origin) -> ReleaseFile:
    tar = tars.get(path.name.removesuffix(".gz"), "") if path.name.endswith(".tar.gz") else ""
    method = f"gzip, level {GZIP_LEVEL}, " if tar else "zip, " if path.suffix in {".zip", ".whl"} else ""
    return ReleaseFile(
        name=path.name,
        size=path.stat().st_size,
        sha256=sha256_file(path),
        tar_sha256=tar,
        compressor=f"{method}zlib {origin.tools.zlib}" if method else "",
    )


def _same_files(one: Path, other: Path) -> bool:
    names = {path.name for path in one.iterdir()}
    if not other.is_dir() or names != {path.name for path in other.iterdir()}:
        return False
    pairs = [(one / name, other / name) for name in names]
    return all(new.samefile(old) or filecmp.cmp(new, old, shallow=False) for new, old in pairs)
