"""Assembly of packs and runtime into a folder of tarballs, and releases that are there already.

The local stamp `.<release>.stamp.json` beside a release has the digests of its inputs and of its SHA256SUMS.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import zstandard

from aotforge.base.architectures import Architecture
from aotforge.base.files import output_errors, output_lock, staged_folder, sync, write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.errors import OutputError, ReleaseError, VerifyError, listed
from aotforge.formats.archive import Members, sha256_file, write_tar_gz
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name, parse_manylinux
from aotforge.formats.sums import SUMS, TAR_SUMS, sums_bytes
from aotforge.formats.untrusted_file import parse_json, parse_model, read_regular
from aotforge.pack.reader import open_files
from aotforge.plan.model import Plan
from aotforge.release.contents import ReleaseContents, json_document, list_contents
from aotforge.release.layout import assembly_tree, images_tree, runtime_tree
from aotforge.release.model import (
    MANIFEST,
    UNSIGNED,
    ImageRecord,
    PackInput,
    PlatformTag,
    ReleaseManifest,
)
from aotforge.release.release import Release, is_release_file
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
) -> Release:
    """Makes `<output>/<release>/` of the packs and the installed runtime in one step, or finds it up to date.

    `inputs`: `inputs_digest` of the arguments; `unverified` makes a development build. Raises VerifyError,
    ReleaseError, OutputError (also of `check_replaceable`), OutputBusyError.
    """
    folder = output / manifest.name
    with output_lock(folder):
        if (existing := find_release(manifest, output, inputs)) is not None:
            return existing
        lacking = _unverified_reasons(packs, unverified=unverified)
        check_replaceable(manifest, output, [packed.pack.name for packed in packs])
        if lacking:
            check_not_verified(manifest, output)
        contents, platform = release_contents(manifest, packs, runtime, licence=licence)
        signatures = [open_files(packed.pack).signature for packed in packs]
        partial = [s for s in signatures if not s.complete]
        development = (
            *(() if platform.reaches else (platform_reason(platform),)),
            *(f"{s.pack} holds profile {s.profile}, which is not complete" for s in partial),
            *lacking,
        )
        with staged_folder(folder) as staged:
            digests = write_tarballs(staged, contents, epoch)
            tars = {name.removesuffix(".gz"): digest for name, digest in digests.items()}
            document = list_contents(manifest.name, packs, platform.tag, development, tars).encoded()
            write_sums(staged, document, tars)
        release = Release.open(folder, fresh=True)
        write_atomic(_stamp(folder), json_document([inputs, release.digest]))
        return release


def release_contents(
    manifest: ReleaseManifest, packs: Sequence[PackInput], runtime: Path, *, licence: bytes
) -> tuple[dict[str, Members], PlatformTag]:
    """Members by tarball name; tarballs with the same bytes share one mapping. Raises ReleaseError."""
    from aotforge.library.build_linux import OPERATOR_LIBRARY  # noqa: PLC0415 - as the next one
    from aotforge.release.platform_tag import measure_platform_tag  # noqa: PLC0415 - 20 ms

    library = runtime / "lib" / manifest.soname
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
    for digests, what, other in (
        ({record.digest for record in packed.records}, "record of its resources", "the record"),
        (set(packed.assembly), "assembly text", "the text"),
    ):
        if unpaired := sorted(images ^ digests):
            pair = f"image {unpaired[0]} has no {what}, or {other} has no image"
            raise ReleaseError(f"{packed.pack.name}: {pair}")


def write_tarballs(folder: Path, contents: dict[str, Members], epoch: int) -> dict[str, str]:
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


def write_sums(folder: Path, document: bytes, tars: Mapping[str, str]) -> None:
    """Writes MANIFEST.json and both lists of sums, synchronised to the disk."""
    write_atomic(folder / MANIFEST, document)
    write_atomic(folder / TAR_SUMS, sums_bytes({**tars, MANIFEST: hashlib.sha256(document).hexdigest()}))
    sums = {path.name: sha256_file(path) for path in folder.iterdir()}
    write_atomic(folder / SUMS, sums_bytes(sums))
    for name in sums:
        sync(folder / name)


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


def _unverified_reasons(packs: Sequence[PackInput], *, unverified: bool) -> tuple[str, ...]:
    """A sentence per pack with images without a passed verdict. Raises VerifyError unless `unverified`."""
    lacking = [[record for record in packed.records if not record.passed] for packed in packs]
    texts = [f"{record.label}: {_reason(record)}" for records in lacking for record in records]
    if texts and not unverified:
        count = sum(len(packed.records) for packed in packs)
        more = f"\n... and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
        raise VerifyError(
            f"{len(texts)} of {count} images have no passed verdict and cannot be released\n"
            + "\n".join(texts[:_MOST_LISTED])
            + more,
            cause="they were not executed on the virtual GPU, or their results differ from the reference",
            hint="`./dev verify` with the same --arch and --profile reports details; "
            "--no-verify makes a development build",
        )
    return tuple(
        f"{len(records)} of {len(packed.records)} images of {packed.pack.name} are not verified: "
        "nothing executed them"
        for packed, records in zip(packs, lacking, strict=True)
        if records
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


_FORMAT = 3


def inputs_digest(
    manifest: ReleaseManifest,
    plans: Iterable[Plan],
    runtime: Path,
    *,
    epoch: int,
    licence: bytes = b"",
    architectures: Mapping[str, Architecture] | None = None,
    verifier: str = "",
) -> str:
    """SHA-256 of everything that can change a release's bytes; a plan's job keys stand for its images.

    `verifier`: the verifier's digest, empty for unverified releases. Occupancy derives from `architectures`.
    """
    digest = hashlib.sha256()

    def add(*parts: str | bytes) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode("utf-8")
            digest.update(len(data).to_bytes(8, "little") + data)

    add(str(_FORMAT), manifest.model_dump_json(), str(epoch), licence, verifier)
    add(zstandard.__version__, str(zstandard.ZSTD_VERSION), version("auditwheel"))
    add(*map(repr, plans))
    for arch, properties in sorted((architectures or {}).items()):
        add(arch, properties.model_dump_json())
    for path in sorted(runtime.rglob("*")):
        content = str(path.readlink()) if path.is_symlink() else sha256_file(path) if path.is_file() else ""
        add(path.relative_to(runtime).as_posix(), content)
    add(group_digest("release"))
    return digest.hexdigest()


def find_release(manifest: ReleaseManifest, output: Path, inputs: str) -> Release | None:
    """The release in `output` if it was made of exactly these inputs and every file has its digest."""
    folder = output / manifest.name
    try:
        release = Release.open(folder)
        if parse_json(_stamp(folder).read_bytes()) != [inputs, release.digest]:
            return None
        release.check_files()
    except (OSError, ValueError, ReleaseError):
        return None  # no stamp, or one of another version: make the release again
    return None if any((folder / name).exists() for name in UNSIGNED) else release


def _stamp(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.stamp.json"


def check_replaceable(manifest: ReleaseManifest, output: Path, packs: Iterable[str]) -> None:
    """Refuses when `<output>/<release>` holds image packs other than `packs`, or files that no build made.

    A release replaces an earlier folder completely, so this comes before compiling. Raises OutputError.
    """
    folder = output / manifest.name
    elsewhere = f"choose another --output, or remove {folder}"
    with output_errors(folder):
        if not folder.exists():
            return
        names = sorted(path.name for path in folder.iterdir())
    own = [
        artifact for name in names if (artifact := parse_artifact_name(name)) and artifact.kind != "windows"
    ]
    wanted = {"", *packs}
    if kept := [pack for pack in dict.fromkeys(artifact.pack for artifact in own) if pack not in wanted]:
        raise OutputError(
            f"{folder} holds image packs that this build would delete: {', '.join(kept)}",
            cause="an earlier build of the same release was for other architectures",
            hint=f"name all architectures in one build (--arch a,b), or {elsewhere}",
        )
    if unknown := [name for name in names if name in UNSIGNED or not is_release_file(name)]:
        raise OutputError(
            f"{folder} holds files that no build made and that this one would delete: {listed(unknown)}",
            cause="they were added by hand, a signature for instance",
            hint=f"move them away, or {elsewhere}",
        )


def check_not_verified(manifest: ReleaseManifest, output: Path) -> None:
    """Refuses to replace a verified release by an unverified one. Raises OutputError."""
    folder = output / manifest.name
    try:
        verified = parse_model(read_regular(folder / MANIFEST), ReleaseContents).verified
    except (OSError, ValueError):
        return  # no release there, or one that cannot pass for verified
    if verified:
        raise OutputError(
            f"{folder} holds a release whose images have all passed verification, "
            "and this build would replace it by an unverified one",
            cause="--no-verify, and something has changed since that release was made",
            hint=f"build without --no-verify, or choose another --output, or remove {folder}",
        )
