"""Differences between two releases: origin, tools, packs, images, resources, verdicts, files."""

import hashlib
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_tar import NoSink, UnsafeArchiveError, file_chunks, read_archive, read_tar
from aotforge.formats.zip_archive import open_zip, read_member
from aotforge.release.listed_files import check_listed_files
from aotforge.release.release_json import DESCRIBING, check_described_files, load_release_json

_RESOURCES = (
    "registers",
    "accumulation_registers",
    "scalar_registers",
    "spilled_registers",
    "shared_bytes",
    "scratch_bytes",
    "occupancy",
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`kind`: origin, toolchain, pack, image, resource, verdict, file or member. Empty `before` or `after`: absent."""

    kind: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class _Image:
    """What is compared of an image, as text."""

    digest: str
    resources: Mapping[str, str]
    outcome: str


def compare_releases(before: Path, after: Path) -> tuple[Difference, ...]:
    """Differences of two release folders, whose files are those that their sums and their release.json list. Raises ReleaseError."""
    documents, files = [], []
    for folder in (before, after):
        sums = check_listed_files(folder)
        document = load_release_json(folder)
        check_described_files(folder, document, sums)
        documents.append(document)
        with _document_errors():
            files.append(_files(folder, sums, f"-{document['release']}-"))
    return (*compare_documents(*documents), *_fields("file", *files))


def compare_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Differences of two release.json documents but for files, in the order of the kinds above. Raises ReleaseError for one that lacks a
    field."""
    with _document_errors():
        return _differences(before, after)


@contextmanager
def _document_errors() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReleaseError(
            f"a release.json cannot be compared: {type(error).__name__}: {error}",
            cause="it was edited, or another program made it",
            hint="fetch the release again",
        ) from error


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    found = _fields("origin", _flat(before["origin"]), _flat(after["origin"]))
    found += _fields("toolchain", _flat(before["toolchain"]), _flat(after["toolchain"]))
    packs = [{str(pack["name"]): pack for pack in one["packs"]} for one in (before, after)]
    found += _fields("pack", *({name: _pack(pack) for name, pack in one.items()} for one in packs))
    for name in sorted(packs[0].keys() & packs[1].keys()):
        found += _images(packs[0][name], packs[1][name])
    return tuple(found)


def compare_archives(before: Path, after: Path) -> tuple[Difference, ...]:
    """Members that differ between two .tar, .tar.gz or .zip files: in content, mode, kind or place. Raises ReleaseError."""
    return tuple(_fields("member", _members(before), _members(after)))


def archive_digest(path: Path) -> str:
    """SHA-256 of the uncompressed tar of a .tar.gz file, of another file itself. Raises ReleaseError."""
    try:
        if path.suffix == ".gz":
            facts = read_archive(file_chunks(path), NoSink(), top=None)
            return facts.tar.sha256
        return sha256_file(path)
    except (OSError, UnsafeArchiveError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}", hint="fetch it again") from error


def _images(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    both = [_by_label(pack) for pack in (before, after)]
    common = sorted(both[0].keys() & both[1].keys())
    digests = [{label: image.digest for label, image in images.items()} for images in both]
    resources = [
        {f"{label} {name}": images[label].resources[name] for label in common for name in _RESOURCES}
        for images in both
    ]
    verdicts = [{label: images[label].outcome for label in common} for images in both]
    return _fields("image", *digests) + _fields("resource", *resources) + _fields("verdict", *verdicts)


def _by_label(pack: Mapping[str, Any]) -> dict[str, _Image]:
    found: dict[str, _Image] = {}
    for image in pack["images"]:
        read = _Image(
            digest=str(image["digest"]),
            resources={name: str(image["resources"][name]) for name in _RESOURCES},
            outcome=str((image["verdict"] or {}).get("outcome", "not executed")),
        )
        found |= {str(job["label"]): read for job in image["jobs"]}
    return found


def _pack(pack: Mapping[str, Any]) -> str:
    return f"profile {pack['profile']} for {', '.join(pack['archs'])}: {len(pack['images'])} images"


def _files(folder: Path, sums: Mapping[str, str], release: str) -> dict[str, str]:
    """Sizes and digests by name without the release's, so that files of two releases pair."""
    found = {
        name.replace(release, "-<release>-"): f"{(folder / name).stat().st_size} bytes, {digest}"
        for name, digest in sums.items()
        if name not in DESCRIBING
    }
    if len(found) != len(sums.keys() - DESCRIBING):
        raise ValueError("two files have one name without the release's")
    return found


def _fields(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(kind=kind, name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any) -> dict[str, str]:
    """The values of an object and of those in it, by name."""
    return dict(_leaves(value, ""))


def _leaves(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield at, str(value)
        return
    for name, part in value.items():
        yield from _leaves(part, f"{at}.{name}" if at else name)


def _members(path: Path) -> dict[str, str]:
    try:
        if path.suffix == ".zip":
            return _zip_members(path)
        sink = _DigestSink()
        if path.suffix == ".gz":
            read_archive(file_chunks(path), sink, top=None, on_entry=sink.entry)
        else:
            read_tar(file_chunks(path), sink, on_entry=sink.entry)
        return sink.members
    except (OSError, UnsafeArchiveError, zipfile.BadZipFile) as error:
        raise ReleaseError(f"{path} cannot be read: {error}", hint="fetch or build it again") from error


def _zip_members(path: Path) -> dict[str, str]:
    with open_zip(path) as archive:
        return {
            info.filename: f"{info.external_attr >> 16:o} {info.date_time} {hashlib.sha256(read_member(archive, info)).hexdigest()}"
            for info in archive.infolist()
        }


class _DigestSink(NoSink):
    """A line of text on each member of a tar: its header, and digest or target."""

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        self._name = ""

    def entry(self, info: tarfile.TarInfo) -> None:
        """Receives the header, then one of the methods below the content."""
        self._name = info.name
        text = f"{info.mode:o} {info.type.decode()} {info.mtime} {info.uid}:{info.gid} {info.size}"
        self.members[info.name] = f"{text} {info.linkname}"

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Adds the content's digest."""
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        self.members[self._name] += digest.hexdigest()
