"""A candidate release: a release folder with its tarballs unpacked, and the form of each archive."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.conformance.findings import Finding, finding_from
from aotforge.errors import ReleaseError
from aotforge.formats.api_level import level_of
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums
from aotforge.formats.tar_reader import Entry, FolderWriter, UnsafeArchiveError, read_archive
from aotforge.release.layout import TOP
from aotforge.release.model import MANIFEST, RELEASE_JSON
from aotforge.release.release import Release


@dataclass(frozen=True, kw_only=True)
class Archive(ArtifactName):
    """A tarball. `root`: its contents; `tar`: SHA-256 of the uncompressed tar; `violations`: of its form."""

    tar: str
    root: Path
    violations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A release, unpacked."""

    release: Release
    archives: tuple[Archive, ...]

    @property
    def windows(self) -> tuple[Path, ...]:
        """Archives for Windows."""
        return tuple(self.release.folder / str(name) for name in self.release.of("windows"))

    @property
    def runtimes(self) -> tuple[Archive, ...]:
        """Runtime tarballs, one per ROCm name."""
        return tuple(archive for archive in self.archives if archive.kind == "runtime")

    def prefix(self) -> Path:
        """The install prefix of the runtime. Raises ReleaseError when there is no runtime tarball."""
        if not self.runtimes:
            raise ReleaseError(f"{self.release.folder} has no runtime tarball")
        return self.runtimes[0].root / TOP

    def packs(self) -> dict[str, Path]:
        """Folders of the image packs by name."""
        return {
            archive.pack: archive.root / TOP / "lib" / "aotriton.images" / archive.pack
            for archive in self.archives
            if archive.kind == "images"
        }


def newest_release(*folders: Path, levels: Sequence[str] = ()) -> Path:
    """The newest release in the first of `folders` that has one of the API levels. Raises ReleaseError."""
    for folder in folders:
        # a name with a dot is a release in progress, or one that was left by a killed process
        paths = list(folder.glob(f"[!.]*/{SUMS}"))
        if fitting := [path for path in paths if not levels or level_of(path.parent.name) in levels]:
            return max(fitting, key=lambda path: path.stat().st_mtime).parent
    raise ReleaseError(
        f"{folders[-1]} holds no release" + (f" of API level {' or '.join(levels)}" if levels else ""),
        cause="none was made yet, or elsewhere",
        hint="./dev build --arch gfx908, or name a folder",
    )


def open_candidate(folder: Path, work: Path) -> Candidate:
    """Reads the folder and unpacks every distinct tarball below `work`. Raises ReleaseError."""
    release = Release.open(folder)
    unpacked: dict[str, tuple[Path, str, tuple[str, ...]]] = {}
    archives = []
    for name in release.archives:
        path = folder / str(name)
        if name.kind == "windows" or not path.exists():
            continue
        digest = sha256_file(path)
        if digest not in unpacked:
            root = work / f"tar-{len(unpacked)}"
            unpacked[digest] = (root, *unpack(path, root))
        root, tar, violations = unpacked[digest]
        archives.append(Archive(**vars(name), tar=tar, root=root, violations=violations))
    return Candidate(release=release, archives=tuple(archives))


def unpack(path: Path, root: Path) -> tuple[str, tuple[str, ...]]:
    """Unpacks a .tar.gz as far as it is safe: SHA-256 of its tar, empty for an unsafe one, and faults."""
    root.mkdir(parents=True)
    violations: list[str] = []
    names: list[str] = []
    write = FolderWriter(root=root)

    def visit(entry: Entry) -> None:
        info = entry.info
        if (info.uid, info.gid, info.uname, info.gname) != (0, 0, "", ""):
            owner = f"{info.uname or info.uid}:{info.gname or info.gid}"
            violations.append(f"{info.name} belongs to {owner}, not to 0:0")
        if not info.issym() and info.mode & 0o7022:  # tar by root keeps the modes of folders, too
            violations.append(f"{info.name} has mode {info.mode:o}")
        if "/" in info.linkname:
            violations.append(f"the link {info.name} leads to another folder, {info.linkname}")
        if names and names[-1].split("/") >= info.name.split("/"):
            violations.append(f"{info.name} is out of order")
        if info.name.split("/")[0] != TOP:
            violations.append(f"{info.name} is outside of {TOP}/")
        names.append(info.name)
        write(entry)

    try:
        with path.open("rb") as file:
            head = file.read(10)
        if head[3:4] != b"\0" or head[4:8] != b"\0\0\0\0":
            violations.append("its gzip header holds a name or a time")
        tar = read_archive(path, visit).tar.sha256
    except (OSError, UnsafeArchiveError) as error:
        return "", (*violations, f"cannot be unpacked: {error}")
    return tar, tuple(dict.fromkeys(violations))


def check_folder(candidate: Candidate, rocms: tuple[str, ...]) -> Iterator[Finding]:
    """Sums, names and completeness for the promised ROCm releases, and the form of each archive."""
    release, archives = candidate.release, candidate.archives
    what = f"every file as {SUMS} and {RELEASE_JSON} list it"
    yield finding_from("folder", what, _file_violations(release), f"{len(release.sums)} files")
    what = "a runtime per promised ROCm, texts for every image pack"
    promised = f"ROCm {' '.join(rocms)}; {', '.join(sorted(candidate.packs()))}"
    yield finding_from("folder", what, _completeness_violations(candidate, rocms), promised)
    what = "the same library under every ROCm's name"
    differing = len({runtime.tar for runtime in candidate.runtimes}) > 1
    yield finding_from("folder", what, ["the tarballs differ"] if differing else [])
    what = f"uncompressed tars as {MANIFEST} and {TAR_SUMS} name them"
    tars = {str(archive).removesuffix(".gz"): archive.tar for archive in archives}
    yield finding_from("folder", what, _tar_violations(release, tars))
    # those of the same bytes have the same faults
    distinct = {archive.root: archive for archive in archives}.values()
    faults = [f"{archive} {text}" for archive in distinct for text in archive.violations]
    what = "one top folder, files and neighbour links only, canonical order and owners"
    yield finding_from("archives", what, faults, f"{len(archives)} archives")


def _file_violations(release: Release) -> list[str]:
    try:
        release.check_files()
    except ReleaseError as error:
        return [error.what]
    return []


def _completeness_violations(candidate: Candidate, rocms: tuple[str, ...]) -> list[str]:
    versions = {archive.rocm for archive in candidate.runtimes}
    if candidate.release.contents.upstream:  # needs the HIP that it was built for
        rocms = tuple(versions)
    images = candidate.packs().keys()
    texts = {archive.pack for archive in candidate.archives if archive.kind == "asm"}
    listed = {pack.name for pack in candidate.release.contents.packs}
    others = [archive for archive in candidate.archives if archive.release != candidate.release.name]
    return [
        *(f"no runtime tarball for ROCm {rocm}" for rocm in rocms if rocm not in versions),
        *(f"ROCm {rocm} is not promised" for rocm in sorted(versions - set(rocms))),
        *(f"{archive} is not of {candidate.release.name}" for archive in others),
        *(f"{pack}: images without texts, or texts without images" for pack in sorted(images ^ texts)),
        *(f"the image pack {name} is missing" for name in sorted(listed - images)),
        *([] if images else ["there is no image pack"]),
    ]


def _tar_violations(release: Release, tars: Mapping[str, str]) -> list[str]:
    listed = release.contents.tarballs
    violations = [
        f"{tar}.gz holds another tar than {MANIFEST} lists" for tar in tars if listed.get(tar) != tars[tar]
    ]
    violations += [f"{tar}.gz is missing" for tar in sorted(listed.keys() - tars.keys())]
    try:
        described = read_sums(release.folder / TAR_SUMS)
    except ReleaseError as error:
        return [*violations, error.what]
    others = {str(name): release.sums[str(name)] for name in release.of("windows")}
    if described != {**tars, **others, MANIFEST: release.sums[MANIFEST]}:
        violations.append(f"{TAR_SUMS} lists other archives")
    return violations


def files_below(root: Path) -> list[Path]:
    """Regular files below a folder, sorted; links are not followed."""
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
