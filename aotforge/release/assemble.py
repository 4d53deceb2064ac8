"""Assembly of packs and runtime into a folder of tarballs with checksums."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder, sync, write_atomic
from aotforge.errors import ReleaseError, VerifyError, listed
from aotforge.formats.archive import Digests, Members, sha256_file, write_tar_gz
from aotforge.formats.artifact_names import ArtifactName, parse_manylinux
from aotforge.formats.sums import SUMS, TAR_SUMS, sums_bytes
from aotforge.pack.reader import open_files
from aotforge.release.contents import list_contents
from aotforge.release.existing_release import check_not_verified, check_replaceable, find_release, write_stamp
from aotforge.release.layout import assembly_tree, images_tree, runtime_tree
from aotforge.release.model import (
    MANIFEST,
    AssembledRelease,
    ImageRecord,
    PackInput,
    PlatformTag,
    ReleaseFile,
    ReleaseManifest,
)
from aotforge.verify.verdict import UNREACHED

_MOST_LISTED = 10


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
) -> AssembledRelease:
    """Makes `<output>/<release>/` of the packs and the installed runtime in one step, or finds it up to date.

    `inputs`: `inputs_digest` of the arguments; `unverified` makes a development build. Raises VerifyError,
    ReleaseError, OutputError (also of `check_replaceable`), OutputBusyError.
    """
    folder = output / manifest.name
    with output_lock(folder):
        found = find_release(manifest, output, inputs)
        if found is not None:
            return found
        if not unverified:
            _require_verdicts(packs)
        lacking = _unverified_reasons(packs)
        check_replaceable(manifest, output, [packed.pack.name for packed in packs])
        if lacking:
            check_not_verified(manifest, output)
        contents, platform = release_contents(manifest, packs, runtime, licence=licence)
        development = (*_development(packs, platform), *lacking)
        with staged_folder(folder) as staged:
            digests = _write_tarballs(staged, contents, epoch)
            tars = {name.removesuffix(".gz"): digest.tar for name, digest in digests.items()}
            contents_file = list_contents(manifest.name, packs, platform.tag, development, tars).encoded()
            sums = _write_sums(staged, contents_file, tars)
            release = AssembledRelease(
                name=manifest.name,
                folder=folder,
                files=tuple(
                    ReleaseFile(
                        name=name,
                        size=(staged / name).stat().st_size,
                        sha256=digest,
                        tar_sha256=tars.get(name.removesuffix(".gz"), ""),
                    )
                    for name, digest in sorted(sums.items())
                ),
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
    """Members by tarball name; tarballs with the same bytes share one mapping. Raises ReleaseError."""
    from aotforge.library.build_linux import OPERATOR_LIBRARY  # noqa: PLC0415 - as the next one
    from aotforge.release.platform_tag import measure_platform_tag, read_soname  # noqa: PLC0415 - 20 ms

    library = runtime / "lib" / manifest.soname
    found = read_soname(library)
    if found != manifest.soname:
        raise ReleaseError(
            f"{library} has SONAME {found}, manifests/release.yaml promises {manifest.soname}",
            cause="the runtime was built for another API level",
            hint="build the runtime again: ./dev build",
        )
    libraries = [library, *runtime.glob(f"lib/{OPERATOR_LIBRARY}")]
    platform = measure_platform_tag(*libraries, promised=manifest.manylinux)
    tree = runtime_tree(runtime, soname=manifest.soname, other_names=manifest.other_names, licence=licence)
    release = manifest.name
    contents: dict[str, Members] = {
        str(ArtifactName(release=release, kind="runtime", platform=platform.tag, rocm=rocm)): tree
        for rocm in manifest.rocm
    }
    for packed in packs:
        _check_pack(packed)
        name = packed.pack.name
        images = str(ArtifactName(release=release, kind="images", pack=name))
        if images in contents:
            raise ReleaseError(f"two image packs are named {name}")
        contents[images] = images_tree(packed, licence=licence)
        texts = str(ArtifactName(release=release, kind="asm", pack=name))
        contents[texts] = assembly_tree(packed, licence=licence)
    return contents, platform


def _check_pack(packed: PackInput) -> None:
    opened = open_files(packed.pack)
    images = {entry.digest.hex() for index in opened.indexes.values() for entry in index.images}
    for found, what, other in (
        ({record.digest for record in packed.records}, "record of its resources", "the record"),
        (set(packed.assembly), "assembly text", "the text"),
    ):
        if unpaired := sorted(images ^ found):
            pair = f"image {unpaired[0]} has no {what}, or {other} has no image"
            raise ReleaseError(f"{packed.pack.name}: {pair}")


def _write_tarballs(folder: Path, contents: dict[str, Members], epoch: int) -> dict[str, Digests]:
    """Archives with the same members become one file with several names; made in threads."""
    first = {id(members): name for name, members in reversed(contents.items())}
    names = list(first.values())
    with ThreadPoolExecutor(min(len(names), len(os.sched_getaffinity(0)))) as pool:
        made = pool.map(lambda name: write_tar_gz(folder / name, contents[name], epoch=epoch), names)
        written = dict(zip(names, made, strict=True))
    for name, members in contents.items():
        if name not in written:
            (folder / name).hardlink_to(folder / first[id(members)])
    return {name: written[first[id(members)]] for name, members in contents.items()}


def _write_sums(folder: Path, document: bytes, tars: Mapping[str, str]) -> dict[str, str]:
    """Writes MANIFEST.json and both lists of sums, synchronised to the disk. SHA-256 by file name."""
    write_atomic(folder / MANIFEST, document)
    write_atomic(folder / TAR_SUMS, sums_bytes({**tars, MANIFEST: hashlib.sha256(document).hexdigest()}))
    sums = {path.name: sha256_file(path) for path in folder.iterdir()}
    write_atomic(folder / SUMS, sums_bytes(sums))
    for name in sums:
        sync(folder / name)
    return {**sums, SUMS: sha256_file(folder / SUMS)}


def _development(packs: Sequence[PackInput], platform: PlatformTag) -> tuple[str, ...]:
    reasons = []
    if not platform.reaches:
        reasons.append(platform_reason(platform))
    for packed in packs:
        signature = open_files(packed.pack).signature
        if not signature.complete:
            reasons.append(f"{packed.pack.name} holds profile {signature.profile}, which is not complete")
    return tuple(reasons)


def platform_reason(platform: PlatformTag) -> str:
    """Why the library is not one of the promised platform."""
    measured, promised = (parse_manylinux(tag) for tag in (platform.measured, platform.promised))
    if measured and promised and all(reason.startswith("GLIBC_") for reason in platform.reasons):
        return (
            f"the library needs glibc {measured.version} ({platform.measured}), "
            f"a release runs with {promised.version} ({platform.promised})"
        )
    return (
        f"the library is {platform.measured}, not {platform.promised}: it needs {listed(platform.reasons, 3)}"
    )


def _require_verdicts(packs: Sequence[PackInput]) -> None:
    """Raises VerifyError naming the images without a passed verdict."""
    records = [record for packed in packs for record in packed.records]
    lacking = [f"{record.label}: {_reason(record)}" for record in records if not record.passed]
    if lacking:
        named = "\n".join(lacking[:_MOST_LISTED])
        more = f"\n... and {len(lacking) - _MOST_LISTED} more" if len(lacking) > _MOST_LISTED else ""
        raise VerifyError(
            f"{len(lacking)} of {len(records)} images have no passed verdict and cannot be released"
            f"\n{named}{more}",
            cause="they were not executed on the virtual GPU, or their results differ from the reference",
            hint="`./dev verify` with the same --arch and --profile reports details; "
            "--no-verify makes a development build",
        )


def _unverified_reasons(packs: Sequence[PackInput]) -> tuple[str, ...]:
    """One sentence per pack with images without a passed verdict, of a development build."""
    return tuple(
        f"{lacking} of {len(packed.records)} images of {packed.pack.name} are not verified: "
        "nothing executed them"
        for packed in packs
        if (lacking := sum(not record.passed for record in packed.records))
    )


def _reason(record: ImageRecord) -> str:
    verdict = record.verdict
    if verdict is None:
        return "not executed"
    if verdict.digest != record.digest:
        return "the verdict is about another image"
    if verdict.outcome == "unverified":
        return UNREACHED
    return verdict.failure.partition("\n")[0] or verdict.outcome
