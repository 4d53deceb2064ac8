"""A release of AOTriton's own library and images: tarballs, verdicts, sums and signatures."""

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotforge.base.files import output_lock, staged_folder
from aotforge.compile.model import Resources
from aotforge.conformance.checks.library import UPSTREAM_PROVIDED
from aotforge.errors import ReleaseError, VerifyError, listed
from aotforge.formats.archive import Link, Member, Members, sha256_file
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.sums import SUMS
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.release.assemble import platform_reason, write_sums, write_tarballs
from aotforge.release.contents import (
    UPSTREAM,
    PackContents,
    ReleaseContents,
    ReleasedImage,
    ReleasedVerdict,
    image_rows,
)
from aotforge.release.finalize import sign_folder
from aotforge.release.layout import TOP, resources_json
from aotforge.release.model import BuildTools, ImageRecord, Origin, ReleaseManifest
from aotforge.release.platform_tag import measure_platform_tag, read_soname
from aotforge.release.release import IMAGES, Release
from aotforge.toolchain.triton import Toolchain
from aotforge.upstream.images import IMAGES as PACKS
from aotforge.upstream.images import TEXTS
from aotforge.upstream.library import RECORD as LIBRARY_RECORD
from aotforge.upstream.verify import read_record
from vgpu.cache import sources_digest

_LIBRARY = "libaotriton_v2.so"
_VERIFY = "./dev upstream.verify PREFIX PACKS --json > verdicts.json"
Tree = dict[str, Member | Link]


@dataclass(frozen=True, kw_only=True)
class PackagingRequest:
    """The library in `prefix` (of `./dev upstream.library`), the `images` and their `verdicts`, a file of
    `./dev upstream.verify --json`, as release `name` in `output`.

    `manifest`: that of its API level, with names of the library, of ROCm and of the platform; `epoch`: time
    of the tarballs' members.
    """

    prefix: Path
    images: Path
    verdicts: Path
    output: Path
    name: str
    manifest: ReleaseManifest
    epoch: int
    key: Ed25519PrivateKey | None
    builder: str


@dataclass(frozen=True, kw_only=True)
class PackagingReport:
    """The release, and how many of its images were executed."""

    release: Release
    executed: int
    images: int

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        files = {file.name: file.sha256 for file in self.release.files}
        counts = {"executed": self.executed, "images": self.images}
        return {"release": self.release.name, "folder": str(self.release.folder), "files": files, **counts}

    def lines(self) -> list[str]:
        """For people."""
        return [
            *(f"{file.size:>12,}  {self.release.folder / file.name}" for file in self.release.files),
            f"{self.executed} of {self.images} images were executed, and passed",
            "signed" if self.release.signed else "not signed",
        ]


def make_release(request: PackagingRequest) -> PackagingReport:
    """Assembles and signs the release in one step. Raises VerifyError for images that failed, ReleaseError
    for files of different builds, OutputError."""
    record, library = read_record(request.images), _read_json(request.prefix / LIBRARY_RECORD)
    if record["aotriton"] != library["aotriton"]:
        raise _mixed(request, f"{request.prefix} is of another commit of AOTriton")
    path = request.prefix / "lib" / _LIBRARY
    verdicts = _read_verdicts(request, sha256_file(path), record)
    name, manifest = request.name, request.manifest
    platform = measure_platform_tag(path, promised=manifest.manylinux, provided=UPSTREAM_PROVIDED)
    tree = _library_tree(request.prefix, manifest.other_names)
    hip = library["hip"].partition(".")[0]
    trees: dict[str, Members] = {
        str(ArtifactName(release=name, kind="runtime", platform=platform.tag, rocm=rocm)): tree
        for rocm in manifest.rocm
        if rocm.partition(".")[0] == hip
    }
    packs = []
    with tarfile.open(request.images / TEXTS) as archive:
        texts = {name: _content(archive, name) for name in archive.getnames()}
    for pack, images in _by_pack(record):
        rows = [
            ImageRecord(
                label=f"{image['functional']} {image['entry']}",
                key=image["job"],
                digest=image["sha256"],
                resources=Resources(**image["resources"]),
            )
            for image in images
        ]
        contents = image_rows(rows, lambda row: (row.digest, _verdict(verdicts[row.digest])))
        packs.append(
            PackContents(
                name=pack,
                profile=UPSTREAM + record["aotriton"]["version"],
                images=tuple(
                    ReleasedImage(labels=labels, jobs=jobs, digest=digest, verdict=verdict)
                    for labels, jobs, (digest, verdict) in contents
                ),
            )
        )
        licence = {name: tree[name] for name in tree if "/licenses/" in name}
        trees[str(ArtifactName(release=name, kind="images", pack=pack))] = licence | _files_below(
            request.images / PACKS / pack, f"{TOP}/{IMAGES}/{pack}"
        )
        asm = f"{TOP}/share/aotriton/asm/{pack}"
        trees[str(ArtifactName(release=name, kind="asm", pack=pack))] = {
            **licence,
            **{f"{asm}/{row.digest}.s": Member(content=texts[f"{row.digest}.s"]) for row in rows},
            f"{asm}/resources.json": Member(content=resources_json(pack, rows)),
        }
    folder = request.output / name
    with output_lock(folder), staged_folder(folder) as staged:
        digests = write_tarballs(staged, trees, request.epoch)
        tars = {name.removesuffix(".gz"): digest for name, digest in digests.items()}
        document = ReleaseContents(
            release=name,
            verified=True,
            development=() if platform.reaches else (platform_reason(platform),),
            platform=platform.tag,
            tarballs=dict(sorted(tars.items())),
            packs=tuple(packs),
        )
        write_sums(staged, document.encoded(), tars)
        if request.key is not None:
            sign_folder(staged, _origin(request, record, library), request.key, builder=request.builder)
    executed = sum(verdict["outcome"] == "passed" for verdict in verdicts.values())
    return PackagingReport(release=Release.open(folder, fresh=True), executed=executed, images=len(verdicts))


def _read_verdicts(
    request: PackagingRequest, library: str, record: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Verdicts by image, of this library and these images. Raises ReleaseError, VerifyError."""
    report = _read_json(request.verdicts)
    verdicts = {image["sha256"]: image for image in report["images"]}
    if record["failed"]:
        raise VerifyError(
            f"{len(record['failed'])} images are empty: {next(iter(record['failed'].values()))}",
            cause="they were built with --skip-failed",
            hint="build the images again without it",
        )
    if report["library"] != library or {image["sha256"] for image in record["images"]} - verdicts.keys():
        raise _mixed(request, f"{request.verdicts} is about another library or other images")
    wrong = [image["entry"] for image in verdicts.values() if image["outcome"] == "failed"]
    if wrong or report["refused"]:
        raise VerifyError(
            f"images or calls failed: {listed(wrong or report['refused'], 3)}",
            cause="they are wrong: the release would compute wrong results",
            hint=_VERIFY,
        )
    return verdicts


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    return file.read() if file else b""


def _verdict(image: Mapping[str, Any]) -> ReleasedVerdict | None:
    """None for an image that no table selects."""
    if image["outcome"] != "passed":
        return None
    return ReleasedVerdict(
        outcome="passed",
        cases=(),
        runs=image["calls"],
        worst=round(image["worst"], 2),
        tools=sources_digest(),
    )


def _by_pack(record: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    packs: dict[str, list[Mapping[str, Any]]] = {}
    for image in record["images"]:
        packs.setdefault(image["functional"].partition("/")[0], []).append(image)
    yield from packs.items()


def _library_tree(prefix: Path, other_names: Sequence[str]) -> Tree:
    """The files of the prefix, with the library's links."""
    soname = read_soname(prefix / "lib" / _LIBRARY)
    tree = _files_below(prefix, TOP)
    tree[f"{TOP}/lib/{soname}"] = Member(content=(prefix / "lib" / soname).read_bytes(), executable=True)
    return tree | {f"{TOP}/lib/{name}": Link(target=soname) for name in (_LIBRARY, *other_names)}


def _files_below(folder: Path, top: str) -> Tree:
    return {
        f"{top}/{path.relative_to(folder).as_posix()}": Member(content=path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path != folder / SUMS
    }


def _origin(request: PackagingRequest, record: Mapping[str, Any], library: Mapping[str, Any]) -> Origin:
    """For the statement about the release: AOTriton's commit, and what compiled it."""
    chain = record["toolchain"]
    return Origin(
        release=request.name,
        commit=record["aotriton"]["commit"],
        archs=tuple(record["archs"]),
        profile=UPSTREAM + record["aotriton"]["version"],
        platforms=("linux",),
        epoch=request.epoch,
        tools=BuildTools(
            toolchain=Toolchain(**chain | {"environment": tuple(map(tuple, chain["environment"]))}),
            compiler=library["tools"]["C++ compiler"],
            zstd=("", ""),
            executor="host",
            roots=(),
        ),
    )


def _read_json(path: Path) -> dict[str, Any]:
    """Raises ReleaseError."""
    try:
        value: dict[str, Any] = parse_json(read_regular(path))
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{path} cannot be read: {error}",
            cause="not a prefix of ./dev upstream.library, or not the verdicts of ./dev upstream.verify",
            hint=_VERIFY,
        ) from error
    return value


def _mixed(request: PackagingRequest, what: str) -> ReleaseError:
    return ReleaseError(what, cause=f"{request.images} was built from other files", hint=_VERIFY)
