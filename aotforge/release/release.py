"""`Release`: a release folder, read back. Every reader of releases gets files through it."""

import hashlib
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError, listed
from aotforge.formats.archive import GZIP_LEVEL, sha256_file
from aotforge.formats.artifact_names import ArtifactName, Kind, parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS, read_sums, read_sums_file
from aotforge.formats.tar_reader import (
    ArchiveFacts,
    Entry,
    FolderWriter,
    UnsafeArchiveError,
    Visit,
    read_archive,
    skip,
)
from aotforge.formats.untrusted_file import parse_json, parse_model, read_regular
from aotforge.formats.wheel import is_own_project, parse_wheel_name
from aotforge.formats.zip_archive import zip_members
from aotforge.pack.model import ImagePack
from aotforge.release.contents import ReleaseContents, ReleaseDescription
from aotforge.release.layout import TOP
from aotforge.release.model import (
    COVERAGE,
    MANIFEST,
    PROVENANCE,
    RELEASE_JSON,
    SBOM,
    SIGNATURE,
    SIGSTORE,
    UNSIGNED,
    ReleaseFile,
)

FETCH = "fetch the release again, or build it again"
IMAGES = "lib/aotriton.images"
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

DESCRIBING = frozenset({TAR_SUMS, SBOM, COVERAGE, RELEASE_JSON})
"""Files that are made after those that release.json describes."""


@dataclass(frozen=True, kw_only=True)
class ReleasedPack:
    """An image pack. Texts, labels (compile jobs, from MANIFEST.json) and resources by image digest."""

    pack: ImagePack
    assembly: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    resources: Mapping[str, Resources]


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release folder. Each file that is read is compared with `sums` (SHA256SUMS, of SHA-256 `digest`).

    `fresh`: it was made just now, and no earlier build had made exactly this.
    """

    folder: Path
    contents: ReleaseContents
    sums: Mapping[str, str]
    digest: str
    fresh: bool = False

    @classmethod
    def open(cls, folder: Path, *, fresh: bool = False) -> "Release":
        """Reads SHA256SUMS and MANIFEST.json. Raises ReleaseError."""
        sums, digest = read_sums_file(folder / SUMS)
        path = folder / MANIFEST
        with _reading(path):
            data = read_regular(path)
        _check_sum(path, hashlib.sha256(data).hexdigest(), sums)
        try:
            contents = parse_model(data, ReleaseContents)
        except ValueError as error:
            raise _damaged(f"{path} is not of this format: {error}") from error
        return cls(folder=folder, contents=contents, sums=sums, digest=digest, fresh=fresh)

    @property
    def name(self) -> str:
        """E.g. 0.13b-r1."""
        return self.contents.release

    @property
    def signed(self) -> bool:
        """Whether it has a signature; `check_finalized_release` checks it."""
        return (self.folder / SIGNATURE).is_file()

    @property
    def files(self) -> tuple[ReleaseFile, ...]:
        """The files that SHA256SUMS lists, and that one. Raises ReleaseError."""
        return describe_files(
            self.folder, {**self.sums, SUMS: self.digest}, read_sums(self.folder / TAR_SUMS)
        )

    @cached_property
    def archives(self) -> tuple[ArtifactName, ...]:
        """The archives that SHA256SUMS lists, by name."""
        return tuple(artifact for name in sorted(self.sums) if (artifact := parse_artifact_name(name)))

    def of(self, kind: Kind) -> tuple[ArtifactName, ...]:
        """Archives of one kind; runtimes by ROCm version."""
        archives = (archive for archive in self.archives if archive.kind == kind)
        return tuple(sorted(archives, key=lambda archive: archive.rocm_version))

    @property
    def runtime(self) -> ArtifactName:
        """The runtime archive for the newest ROCm, the same as the others. Raises ReleaseError."""
        if not (runtimes := self.of("runtime")):
            raise _damaged(f"{self.folder} has no archive of the library", f"{SUMS} names none")
        return runtimes[-1]

    def archive(self, kind: Kind, pack: str) -> ArtifactName:
        """The archive of images or texts of a pack. Raises ReleaseError."""
        matching = [artifact for artifact in self.of(kind) if artifact.pack == pack]
        if len(matching) != 1:
            raise _damaged(
                f"{self.folder} has no {kind} archive for {pack}",
                "the release was built for other archs, or is not complete",
            )
        return matching[0]

    def read(self, archive: ArtifactName, visit: Visit = skip) -> ArchiveFacts:
        """Visits the entries of a tarball. Raises ReleaseError; what `visit` has made must go then."""
        path = self.folder / str(archive)
        with _reading(path):
            facts = read_archive(path, visit, top=TOP)
        _check_sum(path, facts.sha256, self.sums)
        return facts

    def members(self, archive: ArtifactName, below: str = "") -> dict[str, bytes]:
        """The files of an archive by path below the top folder and `below`. Raises ReleaseError."""
        if archive.kind == "windows":
            self._checked(str(archive))
            return read_windows(self.folder / str(archive))
        members: dict[str, bytes] = {}

        def keep(entry: Entry) -> None:
            if entry.content is not None and (path := str(entry.path)).startswith(below):
                members[path.removeprefix(below)] = entry.content.read()

        self.read(archive, keep)
        return members

    def unpack(self, archives: Iterable[ArtifactName], folder: Path) -> Path:
        """Unpacks tarballs into a new prefix below `folder`; returns the prefix. Raises ReleaseError."""
        writer = FolderWriter(root=folder / TOP)
        writer.root.mkdir(parents=True)
        for archive in archives:
            self.read(archive, writer)
        return writer.root

    def packs(self, names: Collection[str] | None = None) -> tuple[ReleasedPack, ...]:
        """Image packs with their texts, by name: all, or those of `names` that it has. Raises ReleaseError.

        Without `names` every file that is there is compared with the sums.
        """
        held = sorted({artifact.pack for artifact in self.archives if artifact.kind in {"images", "asm"}})
        if not held:
            raise _damaged(f"{self.folder} has no image packs", f"{SUMS} names none")
        for name in self.sums if names is None else ():
            if (self.folder / name).exists():
                self._checked(name)
        return tuple(self._pack(pack) for pack in held if names is None or pack in names)

    def _pack(self, pack: str) -> ReleasedPack:
        files = self.members(self.archive("images", pack), f"{IMAGES}/{pack}/")
        texts = self.members(self.archive("asm", pack), f"share/aotriton/asm/{pack}/")
        resources = _resources(self.folder / str(self.archive("asm", pack)), texts.pop("resources.json", b""))
        images = [
            image for contents in self.contents.packs if contents.name == pack for image in contents.images
        ]
        labels: dict[str, tuple[str, ...]] = {}
        for image in images:
            labels[image.digest] = labels.get(image.digest, ()) + image.labels
        return ReleasedPack(
            pack=ImagePack(name=pack, files=files),
            assembly={
                name.removesuffix(".s"): text.decode("ascii", "replace") for name, text in texts.items()
            },
            labels=labels,
            resources=resources,
        )

    def check_files(self) -> None:
        """Every file is listed, with its digest, and no other is there. Raises ReleaseError."""
        present = {path.name for path in self.folder.iterdir()} - {SUMS} - UNSIGNED
        if odd := sorted(present ^ set(self.sums)):
            what = f"{listed(odd)} {'is' if len(odd) == 1 else 'are'} in the folder or in {SUMS}, not in both"
            raise _damaged(
                f"{self.folder}: {what}", "a file was added or lost, or the download is not complete"
            )
        if odd := [name for name in sorted(present) if not is_release_file(name)]:
            raise _damaged(f"{self.folder}: {odd[0]} has not the name of a release's file")
        for name in self.sums:
            self._checked(name)
        if RELEASE_JSON in self.sums:
            self.description()

    def description(self) -> ReleaseDescription:
        """release.json, which describes the files that SHA256SUMS lists. Raises ReleaseError."""
        path = self.folder / RELEASE_JSON
        try:
            data = read_regular(path)
            description = parse_model(data, ReleaseDescription)
        except (OSError, ValueError) as error:
            raise ReleaseError(
                f"{path} cannot be used: {getattr(error, 'strerror', None) or error}",
                cause="the folder holds no finished release, or one of another version of this program",
                hint="name a folder that `./dev release` made",
            ) from error
        _check_sum(path, hashlib.sha256(data).hexdigest(), self.sums)
        described = {file.name: file.sha256 for file in description.files}
        if described != {name: digest for name, digest in self.sums.items() if name not in DESCRIBING}:
            raise _damaged(
                f"{path} describes other files than {SUMS} lists", "files of two releases were mixed"
            )
        return description

    def _checked(self, name: str) -> str:
        """The digest of a file, which is the listed one. Raises ReleaseError."""
        path = self.folder / name
        with _reading(path):
            digest = sha256_file(path)
        _check_sum(path, digest, self.sums)
        return digest


def describe_files(
    folder: Path, sums: Mapping[str, str], tars: Mapping[str, str], zlib: str = ""
) -> tuple[ReleaseFile, ...]:
    """Files of `folder` by name. `tars`: digests of uncompressed archives; `zlib`: what compressed them."""
    files = []
    for name, digest in sorted(sums.items()):
        tar = tars.get(name.removesuffix(".gz"), "") if name.endswith(".tar.gz") else ""
        method = f"gzip, level {GZIP_LEVEL}, " if tar else "zip, " if name.endswith((".zip", ".whl")) else ""
        compressor = f"{method}zlib {zlib}" if method and zlib else ""
        size = (folder / name).stat().st_size
        files.append(ReleaseFile(name=name, size=size, sha256=digest, tar_sha256=tar, compressor=compressor))
    return tuple(files)


def is_release_file(name: str) -> bool:
    """True for the names of a release's files: of `--find-links FOLDER` pip executes source archives."""
    wheel = parse_wheel_name(name)
    own_wheel = wheel is not None and is_own_project(wheel.name)
    return own_wheel or name in DOCUMENTS or parse_artifact_name(name) is not None


def read_windows(path: Path) -> dict[str, bytes]:
    """The files of a zip for Windows, by path below its top folder. Raises ReleaseError."""
    with _reading(path):
        return {info.filename.removeprefix(f"{TOP}/"): data for info, data in zip_members(path)}


def _check_sum(path: Path, digest: str, sums: Mapping[str, str]) -> None:
    if digest != sums.get(path.name):
        raise _damaged(f"{path} is not the file that {SUMS} names", "it was altered or replaced")


def _damaged(what: str, cause: str = "") -> ReleaseError:
    return ReleaseError(what, cause=cause, hint=FETCH)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of a file as ReleaseError."""
    try:
        yield
    except (UnsafeArchiveError, zipfile.BadZipFile) as error:
        raise _damaged(f"{path}: {error}", "the archive is damaged, or was not made by the build") from error
    except OSError as error:
        raise _damaged(f"{path}: {error.strerror or error}", "the release is not complete") from error


def _resources(path: Path, data: bytes) -> dict[str, Resources]:
    """Resources by image digest, of `resources.json`. Raises ReleaseError."""
    names = [field.name for field in fields(Resources)]
    try:
        rows = parse_json(data)["images"]
        return {str(row["digest"]): Resources(**{name: int(row[name]) for name in names}) for row in rows}
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise _damaged(f"{path}: resources.json is missing or not of this format") from error
