"""A candidate release: a release folder with its tarballs unpacked."""

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aotforge.conformance.findings import Finding, finding_from
from aotforge.errors import ReleaseError
from aotforge.formats.api_level import level_of
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.formats.folder_sink import FolderSink
from aotforge.formats.sums import SUMS, TAR_SUMS, parse_sums, read_sums
from aotforge.formats.untrusted_file import open_regular, read_regular
from aotforge.formats.untrusted_tar import UnsafeArchiveError, file_chunks, read_archive
from aotforge.release.layout import TOP, entry_violation
from aotforge.release.listed_files import is_release_file
from aotforge.release.model import MANIFEST, RELEASE_JSON, UNSIGNED
from aotforge.release.release_json import check_described_files, load_release_json


class _Reported(BaseModel):
    """A part of MANIFEST.json that the checks read; a value of another type is refused."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ReportedVerdict(_Reported):
    """The verdict of an image, as the release states it."""

    outcome: str = "never executed"
    cases: tuple[str, ...] = ()
    runs: int = 0
    tools: str = ""


class ReportedRow(_Reported):
    """An image; `jobs` and `labels` correspond."""

    digest: str = ""
    jobs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    verdict: ReportedVerdict | None = None


class ReportedPack(_Reported):
    """An image pack."""

    name: str
    images: tuple[ReportedRow, ...] = ()


class ReportedManifest(_Reported):
    """MANIFEST.json of a candidate. `tarballs`: SHA-256 of the uncompressed tars by name."""

    release: str
    tarballs: dict[str, object] = Field(default_factory=dict)
    packs: tuple[ReportedPack, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Archive(ArtifactName):
    """A tarball of the release. `root`: folder of its contents, shared by tarballs of the same bytes.

    `tar`: SHA-256 of the uncompressed tar; `violations`: faults of its form.
    """

    tar: str
    root: Path
    violations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A release folder, unpacked. `manifest` is MANIFEST.json, `sums` SHA256SUMS."""

    name: str
    folder: Path
    manifest: ReportedManifest
    sums: Mapping[str, str]
    archives: tuple[Archive, ...]
    windows: tuple[Path, ...]

    @property
    def runtimes(self) -> tuple[Archive, ...]:
        """Runtime tarballs, one per ROCm name."""
        return tuple(a for a in self.archives if a.kind == "runtime")

    def prefix(self) -> Path:
        """The install prefix of the runtime. Raises ReleaseError when there is no runtime tarball."""
        if not self.runtimes:
            raise ReleaseError(f"{self.folder} has no runtime tarball")
        return self.runtimes[0].root / TOP

    def packs(self) -> dict[str, Path]:
        """Folders of the image packs by name."""
        return {
            a.pack: a.root / TOP / "lib" / "aotriton.images" / a.pack
            for a in self.archives
            if a.kind == "images"
        }


def newest_release(*folders: Path, levels: Sequence[str] = ()) -> Path:
    """The release that was written last, in the first of `folders` that holds one of the API levels (default:
    any). Raises ReleaseError."""
    for folder in folders:
        # a name with a dot is a release in progress, or one that was left by a killed process
        found = list(folder.glob(f"[!.]*/{SUMS}"))
        if fitting := [path for path in found if not levels or level_of(path.parent.name) in levels]:
            return max(fitting, key=lambda path: path.stat().st_mtime).parent
    raise ReleaseError(
        f"{folders[-1]} holds no release" + (f" of API level {' or '.join(levels)}" if levels else ""),
        cause="none was made yet, or elsewhere",
        hint="./dev build --arch gfx908, or name a folder",
    )


def open_candidate(folder: Path, work: Path) -> Candidate:
    """Reads the folder and unpacks every distinct tarball below `work`. Raises ReleaseError."""
    try:
        manifest = _read_manifest(folder / MANIFEST)
        sums = parse_sums(read_regular(folder / SUMS).decode("ascii"))
        present = sorted(path.name for path in folder.iterdir())
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{folder} is not a release: {error}",
            cause=f"{MANIFEST} or {SUMS} is missing or damaged",
            hint="name the folder that `./dev build` printed, e.g. releases/dist/0.11.2b-r1",
        ) from error
    names = [found for file in present if (found := parse_artifact_name(file))]
    return Candidate(
        name=manifest.release,
        folder=folder,
        manifest=manifest,
        sums=sums,
        archives=tuple(_unpack_all(folder, [name for name in names if name.kind != "windows"], work)),
        windows=tuple(folder / str(name) for name in names if name.kind == "windows"),
    )


def _read_manifest(path: Path) -> ReportedManifest:
    """Raises OSError, ValueError naming the first value that does not fit."""
    try:
        return ReportedManifest.model_validate_json(read_regular(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{path.name}: {where}: {first['msg']}" if where else f"{path.name}: {first['msg']}"
        ) from None


def _unpack_all(folder: Path, names: list[ArtifactName], work: Path) -> Iterator[Archive]:
    """Unpacks tarballs of the same bytes once."""
    unpacked: dict[str, tuple[Path, str, tuple[str, ...]]] = {}
    for name in names:
        path = folder / str(name)
        digest = _digest(path)
        if not digest:
            raise ReleaseError(f"{path} cannot be read", cause="it is not a regular file of this user")
        if digest not in unpacked:
            root = work / f"tar-{len(unpacked)}"
            root.mkdir(parents=True)
            unpacked[digest] = (root, *unpack(path, root))
        root, tar, violations = unpacked[digest]
        yield Archive(**vars(name), tar=tar, root=root, violations=violations)


def unpack(path: Path, root: Path) -> tuple[str, tuple[str, ...]]:
    """Unpacks a .tar.gz below `root`; of an unsafe one what precedes the first unsafe entry.

    Returns the SHA-256 of the uncompressed tar, empty for an unsafe one, and the faults of the archive's
    form.
    """
    violations: list[str] = []
    names: list[str] = []
    archive = parse_artifact_name(path.name)

    def check_form(info: tarfile.TarInfo) -> None:
        violations.extend(faults(info))
        names.append(info.name)

    def faults(info: tarfile.TarInfo) -> Iterator[str]:
        if (info.uid, info.gid, info.uname, info.gname) != (0, 0, "", ""):
            owner = f"{info.uname or info.uid}:{info.gname or info.gid}"
            yield f"{info.name} belongs to {owner}, not to 0:0"
        if not info.issym() and info.mode & 0o7022:  # tar by root keeps the modes of folders, too
            yield f"{info.name} has mode {info.mode:o}"
        if names and names[-1].split("/") >= info.name.split("/"):
            yield f"{info.name} is out of order"
        if archive and (
            violation := entry_violation(archive, info.name, folder=info.isdir(), link=info.issym())
        ):
            yield violation

    sink = FolderSink(root=root, neighbours=True)
    sink.root.mkdir(parents=True, exist_ok=True)
    try:
        with open_regular(path) as file:
            head = file.read(10)
        if head[3:4] != b"\0" or head[4:8] != b"\0\0\0\0":
            violations.append("its gzip header holds a name or a time")
        facts = read_archive(file_chunks(path), sink, top=None, on_entry=check_form)
    except (OSError, UnsafeArchiveError) as error:
        return "", (*violations, f"cannot be unpacked: {error}")
    tops = sorted({name.split("/", 1)[0] for name in names})
    if tops != [TOP]:
        violations.append(f"has {len(tops)} top entries ({', '.join(tops[:4])}), PyTorch needs one: {TOP}")
    return facts.tar.sha256, tuple(dict.fromkeys(violations))


def check_folder(candidate: Candidate, rocms: tuple[str, ...]) -> list[Finding]:
    """Sums, names and completeness of the folder for the promised ROCm releases, and the form of each
    archive."""
    packs = ", ".join(sorted(candidate.packs()))
    # those of the same bytes have the same faults
    distinct = {archive.root: archive for archive in candidate.archives}.values()
    form = (f"{archive} {text}" for archive in distinct for text in archive.violations)
    differing = ["the tarballs differ"] if len({archive.tar for archive in candidate.runtimes}) > 1 else []
    return [
        finding_from(
            "folder",
            f"every file as {SUMS} lists it",
            _sums_violations(candidate),
            f"{len(candidate.sums)} files",
        ),
        finding_from(
            "folder",
            "a runtime per promised ROCm, texts for every image pack",
            _completeness_violations(candidate, rocms),
            f"ROCm {' '.join(rocms)}; {packs}",
        ),
        finding_from("folder", "the same library under every ROCm's name", differing),
        finding_from("folder", f"{RELEASE_JSON} describes these files", _description_violations(candidate)),
        finding_from("folder", f"uncompressed tars as {MANIFEST} names them", _tar_violations(candidate)),
        finding_from(
            "archives",
            "one top folder, files and neighbour links only, canonical order and owners",
            form,
            f"{len(candidate.archives)} archives",
        ),
    ]


def _digest(path: Path) -> str:
    """SHA-256 of a file; empty when it cannot be read."""
    try:
        return sha256_file(path)
    except OSError:
        return ""


def _sums_violations(candidate: Candidate) -> list[str]:
    present = {path.name for path in candidate.folder.iterdir()}
    listed = candidate.sums.keys()
    return [
        *(f"{name} is missing" for name in sorted(listed - present)),
        *(f"{name} is not listed" for name in sorted(present - listed - {SUMS, *UNSIGNED})),
        *(
            f"{name} has not the name of a release's file"
            for name in sorted(listed)
            if not is_release_file(name)
        ),
        *(
            f"{name} is not the file that was listed"
            for name in sorted(listed & present)
            if _digest(candidate.folder / name) != candidate.sums[name]
        ),
    ]


def _completeness_violations(candidate: Candidate, rocms: tuple[str, ...]) -> list[str]:
    found = {archive.rocm for archive in candidate.runtimes}
    images = candidate.packs().keys()
    texts = {archive.pack for archive in candidate.archives if archive.kind == "asm"}
    return [
        *(f"no runtime tarball for ROCm {rocm}" for rocm in rocms if rocm not in found),
        *(f"ROCm {rocm} is not promised" for rocm in sorted(found - set(rocms))),
        *(
            f"{archive} is not of {candidate.name}"
            for archive in candidate.archives
            if archive.release != candidate.name
        ),
        *(f"{pack}: images without texts, or texts without images" for pack in sorted(images ^ texts)),
        *([] if images else ["there is no image pack"]),
    ]


def _tar_violations(candidate: Candidate) -> list[str]:
    digests = candidate.manifest.tarballs
    found = {str(archive).removesuffix(".gz"): archive.tar for archive in candidate.archives}
    packs = {pack.name for pack in candidate.manifest.packs}
    return [
        *(
            f"{tar}.gz holds another tar than {MANIFEST} lists"
            for tar in found
            if digests.get(tar) != found[tar]
        ),
        *(f"{tar}.gz is missing" for tar in sorted(digests.keys() - found.keys())),
        *(f"the image pack {name} is missing" for name in sorted(packs - candidate.packs().keys())),
    ]


def _description_violations(candidate: Candidate) -> list[str]:
    """Of the documents of a finished release; a build's folder has the second one only."""
    found = []
    try:
        if RELEASE_JSON in candidate.sums:
            check_described_files(candidate.folder, load_release_json(candidate.folder), candidate.sums)
        tars = {str(archive).removesuffix(".gz"): archive.tar for archive in candidate.archives}
        zips = {path.name: candidate.sums.get(path.name) for path in candidate.windows}
        if TAR_SUMS in candidate.sums and read_sums(candidate.folder / TAR_SUMS) != tars | zips | {
            MANIFEST: candidate.sums.get(MANIFEST)
        }:
            found.append(f"{TAR_SUMS} lists other archives")
    except ReleaseError as error:
        found.append(error.what)
    return found


def files_below(root: Path) -> list[Path]:
    """Regular files below a folder, sorted; links are not followed."""
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
