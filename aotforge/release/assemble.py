"""Assembly: packs and the runtime in, a folder of tarballs with checksums out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.errors import ReleaseError
from aotforge.formats.archive import Digests, Members, check_tar_gz, sha256_file, write_tar_gz
from aotforge.formats.sums import SUMS, TAR_SUMS, sums_bytes
from aotforge.pack.reader import open_files
from aotforge.release.attestations import MANIFEST
from aotforge.release.json_documents import manifest_json
from aotforge.release.layout import assembly_tree, images_tree, runtime_tree
from aotforge.release.model import PackInput, PlatformTag, Release, ReleaseFile
from aotforge.release.overwrite_guard import check_not_verified, check_replaceable
from aotforge.release.platform_tag import measure_platform_tag, read_soname
from aotforge.release.release_manifest import ReleaseManifest
from aotforge.release.stamp import find_release, write_stamp
from aotforge.release.verdict_gate import require_verdicts, unverified_reasons


def assemble_release(
    manifest: ReleaseManifest,
    packs: Sequence[PackInput],
    runtime: Path,
    *,
    output: Path,
    licence: bytes,
    epoch: int,
    inputs: str,
    unverified: bool = False,
) -> Release:
    """Makes `<output>/<release>/` of the packs and the runtime's install prefix, or finds it made already.

    Everything is built beside its place, read back and compared, and only then moved there in one step:
    whatever goes wrong, an earlier release stays as it was. `inputs` is `inputs_digest` of what the
    arguments were made from. Raises VerifyError for an image without a passed verdict, unless `unverified` asks for a
    development build, which says of itself what it lacks; ReleaseError for input that makes no release, OutputError when the
    output cannot be written or holds what this release would delete (`check_replaceable`), OutputBusyError when another build writes
    it now.
    """
    folder = output / manifest.name
    with output_lock(folder):
        found = find_release(manifest, output, inputs)
        if found is not None:
            return found
        if not unverified:
            require_verdicts(packs)
        lacking = unverified_reasons(packs)
        check_replaceable(manifest, output, [packed.pack.name for packed in packs])
        if lacking:
            check_not_verified(manifest, output)
        contents, platform = release_contents(manifest, packs, runtime, licence=licence)
        with staged_folder(folder) as staged:
            digests = _write_tarballs(staged, contents, epoch)
            development = (*_development(packs, platform), *lacking)
            tars = {name.removesuffix(".gz"): d.tar for name, d in digests.items()}
            said = manifest_json(
                manifest.name, packs, platform=platform.tag, development=development, tars=tars
            )
            _write_file(staged / MANIFEST, said)
            _write_sums(staged, TAR_SUMS, {**tars, MANIFEST: hashlib.sha256(said).hexdigest()})
            _write_sums(staged, SUMS, {path.name: sha256_file(path) for path in staged.iterdir()})
            _read_back(staged, contents, digests)
            release = Release(
                name=manifest.name,
                folder=folder,
                files=_files(staged, digests),
                platform=platform,
                development=development,
                verified=not lacking,
                fresh=True,
            )
        write_stamp(release, inputs)
        return release


def release_contents(
    manifest: ReleaseManifest, packs: Sequence[PackInput], runtime: Path, *, licence: bytes
) -> tuple[dict[str, Members], PlatformTag]:
    """Tarball names and what goes into each. Tarballs with the same bytes share one mapping. Raises
    ReleaseError.
    """
    library = runtime / "lib" / manifest.soname
    found = read_soname(library)
    if found != manifest.soname:
        raise ReleaseError(
            f"{library} has SONAME {found}, manifests/release.yaml promises {manifest.soname}",
            cause="the runtime was built for another API level",
            hint="build the runtime again",
        )
    platform = measure_platform_tag(library, promised=manifest.manylinux)
    tree = runtime_tree(runtime, soname=manifest.soname, older_names=manifest.older_names, licence=licence)
    prefix = f"aotriton-{manifest.name}"
    contents: dict[str, Members] = {
        f"{prefix}-{platform.tag}-rocm{rocm}-shared.tar.gz": tree for rocm in manifest.rocm
    }
    for packed in packs:
        _check_pack(packed)
        name = packed.pack.name
        if f"{prefix}-images-{name}.tar.gz" in contents:
            raise ReleaseError(f"two image packs are named {name}")
        contents[f"{prefix}-images-{name}.tar.gz"] = images_tree(packed, licence=licence)
        contents[f"{prefix}-asm-{name}.tar.gz"] = assembly_tree(packed, licence=licence)
    return contents, platform


def _check_pack(packed: PackInput) -> None:
    opened = open_files(packed.pack)
    images = {entry.digest.hex() for index in opened.indexes.values() for entry in index.images}
    unrecorded = sorted(images ^ {record.digest for record in packed.records})
    if unrecorded:
        raise ReleaseError(
            f"{packed.pack.name}: image {unrecorded[0]} has no record of its resources, or the record has no image"
        )
    odd = sorted(images ^ set(packed.assembly))
    if odd:
        raise ReleaseError(
            f"{packed.pack.name}: image {odd[0]} has no assembly text, or the text has no image"
        )


def _write_tarballs(folder: Path, contents: Mapping[str, Members], epoch: int) -> dict[str, Digests]:
    """Archives with the same members are one file under several names; different ones are written side by side, for deflate and hashing
    run outside Python's lock."""
    first: dict[int, str] = {}
    for name, members in contents.items():
        first.setdefault(id(members), name)
    with ThreadPoolExecutor(min(len(first), len(os.sched_getaffinity(0)))) as pool:
        written = dict(
            zip(
                first.values(),
                pool.map(
                    lambda name: write_tar_gz(folder / name, contents[name], epoch=epoch), first.values()
                ),
                strict=True,
            )
        )
    for name, members in contents.items():
        if name not in written:
            (folder / name).hardlink_to(folder / first[id(members)])
    return {name: written[first[id(members)]] for name, members in contents.items()}


def _write_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)


def _write_sums(folder: Path, name: str, sums: Mapping[str, str]) -> None:
    """A file for `sha256sum --check`, synchronised to the disk together with what it lists."""
    path = folder / name
    _write_file(path, sums_bytes(sums))
    for listed in (*(folder / file for file in sums), path):
        if listed.exists():
            handle = os.open(listed, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def _read_back(folder: Path, contents: Mapping[str, Members], digests: Mapping[str, Digests]) -> None:
    distinct = {id(members): name for name, members in contents.items()}
    with ThreadPoolExecutor(min(len(distinct), len(os.sched_getaffinity(0)))) as pool:
        # a list: an iterator that nobody reads would keep the errors to itself
        list(
            pool.map(
                lambda name: check_tar_gz(folder / name, contents[name], digests[name]), distinct.values()
            )
        )


def _files(folder: Path, digests: Mapping[str, Digests]) -> tuple[ReleaseFile, ...]:
    found = []
    for path in sorted(folder.iterdir()):
        made = digests.get(path.name)
        digest, tar = (made.file, made.tar) if made else (sha256_file(path), "")
        found.append(ReleaseFile(name=path.name, size=path.stat().st_size, sha256=digest, tar_sha256=tar))
    return tuple(found)


def _development(packs: Sequence[PackInput], platform: PlatformTag) -> tuple[str, ...]:
    reasons = []
    if not platform.reaches:
        needs = ", ".join(platform.reasons[:3]) + (", ..." if len(platform.reasons) > 3 else "")
        reasons.append(f"the library is {platform.measured}, not {platform.promised}: it needs {needs}")
    for packed in packs:
        signature = open_files(packed.pack).signature
        if not signature.complete:
            reasons.append(f"{packed.pack.name} holds profile {signature.profile}, which is not complete")
    return tuple(reasons)
