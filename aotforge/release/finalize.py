"""Finalisation: a build's folder with documents, sums and signatures becomes a release."""

import filecmp
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aotforge.base.files import link_or_copy, output_errors, output_lock, staged_folder, write_atomic
from aotforge.base.html import render
from aotforge.errors import SignatureError
from aotforge.formats.archive import sha256_file
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
)
from aotforge.release.release import FETCH, Release, ReleasedPack, describe_files
from aotforge.release.signing import (
    check_sums,
    open_statement,
    sign_statement,
    sign_sums,
    sigstore_bundle,
)


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
) -> Release:
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
        described = describe_files(staged, _sums(staged), tars, origin.tools.zlib)
        zips = {path.name: sha256_file(path) for path in extra if path.suffix == ".zip"}
        write_atomic(staged / TAR_SUMS, sums_bytes({**tars, **zips}))
        write_atomic(staged / SBOM, sbom_json(origin, described))
        packs = made.packs()
        resources = {packed.pack.name: packed.resources for packed in packs}
        write_atomic(staged / COVERAGE, _coverage(origin.release, packs))
        description = describe_release(
            origin, plans=plans, resources=resources, contents=made.contents, files=described
        )
        write_atomic(staged / RELEASE_JSON, description.encoded())
        write_atomic(staged / SUMS, sums_bytes(_sums(staged)))
        if key is not None:
            sign_folder(staged, origin, key, builder=builder)
        approve(staged)
        names = {path.name for path in (*staged.iterdir(), *folder.glob("*"))}
        fresh = len(filecmp.cmpfiles(staged, folder, names, shallow=False)[0]) < len(names)
    return Release.open(folder, fresh=fresh)


def sign_folder(folder: Path, origin: Origin, key: Ed25519PrivateKey, *, builder: str) -> None:
    """Signs the sums in `folder`, and a statement about its files. Raises OutputError."""
    digests = _sums(folder)
    write_atomic(folder / SIGNATURE, sign_sums((folder / SUMS).read_bytes(), key))
    envelope = sign_statement(statement_json(origin, digests, builder=builder), key)
    write_atomic(folder / PROVENANCE, envelope)
    write_atomic(folder / SIGSTORE, sigstore_bundle(envelope, key.public_key()))


def _sums(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in folder.iterdir()}


def _coverage(release: str, packs: Sequence[ReleasedPack]) -> bytes:
    """Size, served calls and bytes of the first call of each pack; equal packs give equal bytes."""
    tables = [pack_coverage(open_files(packed.pack)) for packed in packs]
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
