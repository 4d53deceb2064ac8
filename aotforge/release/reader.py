"""Reader of release folders, verified with SHA256SUMS: image packs, assembly texts, resources."""

import hashlib
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from aotforge.compile.model import Resources
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.formats.memory_sink import MemorySink
from aotforge.formats.sums import SUMS, read_sums_file
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.formats.untrusted_tar import NoSink, Sink, UnsafeArchiveError, file_chunks, read_archive
from aotforge.formats.zip_archive import open_zip, read_member
from aotforge.pack.model import DISPATCH_FILE, ImagePack
from aotforge.release.layout import TOP, check_names, entry_violation
from aotforge.release.model import MANIFEST


@dataclass(frozen=True, kw_only=True)
class ReleasedPack:
    """An image pack of a release. Texts, labels (compile jobs) and resources by image digest; `listed`: images of the
    pack in MANIFEST.json, None for a release without one; `sums`: SHA-256 of the SHA256SUMS that the files were compared with."""

    release: str
    pack: ImagePack
    assembly: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    resources: Mapping[str, Resources]
    listed: frozenset[str] | None = None
    sums: str = ""


def read_release(folder: Path, *, packs: Collection[str] | None = None) -> tuple[ReleasedPack, ...]:
    """Every image pack of a release folder, by name, or those of `packs` that it has: the files of others may be missing then.

    Without `packs`, the other archives and the wheels in the folder are checked, too: their images are used as well. Raises ReleaseError for a
    file that is missing, altered or damaged.
    """
    sums, digest = read_sums_file(folder / SUMS)
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in sums:
        parts = parse_artifact_name(name)
        if parts and parts.kind in {"images", "asm"}:
            found.setdefault((parts.pack, parts.release), {})[parts.kind] = name
    if not found:
        raise _unusable(f"{folder} has no image packs", f"{SUMS} names none")
    images = _listed(folder, sums)
    read = tuple(
        replace(_pack(folder, sums, pack, release, names, images), sums=digest)
        for (pack, release), names in sorted(found.items())
        if packs is None or pack in packs
    )
    if packs is None:
        _check_other_archives(folder, sums, read)
    return read


def _unusable(what: str, cause: str = "") -> ReleaseError:
    return ReleaseError(what, cause=cause, hint="fetch the release again, or build it again")


def _check_sum(path: Path, digest: str, sums: Mapping[str, str]) -> None:
    if digest != sums.get(path.name):
        raise _unusable(f"{path} is not the file that {SUMS} names", "it was altered or replaced")


def _check_other_archives(folder: Path, sums: Mapping[str, str], packs: Collection[ReleasedPack]) -> None:
    """Runtimes, Windows archives and wheels, as far as they are in the folder, and archives that SHA256SUMS does not list."""
    seen: set[str] = set()
    for path in sorted(folder.iterdir()):
        archive = parse_artifact_name(path.name)
        zipped = path.suffix == ".whl" or (archive is not None and archive.kind == "windows")
        if not (archive or zipped) or (archive and archive.kind in {"images", "asm"} and path.name in sums):
            continue
        with _reading(path):
            digest = sha256_file(path)
            _check_sum(path, digest, sums)
            if zipped:
                _check_zip(path, archive, packs)
            elif digest not in seen:  # runtimes differ in their names only
                _read(path, NoSink())
            seen.add(digest)


def _check_zip(path: Path, archive: ArtifactName | None, packs: Collection[ReleasedPack]) -> None:
    """A Windows archive or a wheel, whose images are those of the packs.

    Raises OSError, UnsafeArchiveError, BadZipFile.
    """
    names = archive.packs if archive else frozenset[str]()
    known = {one.pack.name: one.pack.files for one in packs}
    # a library without the images that its archive is named for does nothing
    missing = {f"{pack}/{name}" for pack in names for name in known.get(pack, [DISPATCH_FILE])}
    with open_zip(path) as file:
        for info in file.infolist():
            if archive and (violation := entry_violation(archive, info.filename)):
                raise UnsafeArchiveError(violation)
            _, images, inside = info.filename.partition("aotriton.images/")
            pack, _, name = inside.partition("/")
            held = [one.pack.files[name] for one in packs if one.pack.name == pack and name in one.pack.files]
            fitting = [data for data in held if len(data) == info.file_size]  # before anything is read
            if images and (not fitting or read_member(file, info) not in fitting):
                raise UnsafeArchiveError(
                    f"{info.filename!r} is not that file of an image pack of the release"
                )
            missing.discard(inside)
    if missing:
        raise UnsafeArchiveError(f"{min(missing)} of an image pack in its name is not in it")


def _listed(folder: Path, sums: Mapping[str, str]) -> dict[str, frozenset[str]] | None:
    """Digests of the images in MANIFEST.json by pack; None for releases from before there was one."""
    path = folder / MANIFEST
    if MANIFEST not in sums and not path.exists():
        return None
    try:
        data = read_regular(path)
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror}", "the release is not complete") from error
    _check_sum(path, hashlib.sha256(data).hexdigest(), sums)
    try:
        packs = parse_json(data)["packs"]
        return {str(pack["name"]): frozenset(str(row["digest"]) for row in pack["images"]) for pack in packs}
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(f"{path} is not of this format") from error


def _pack(
    folder: Path,
    sums: Mapping[str, str],
    pack: str,
    release: str,
    names: Mapping[str, str],
    listed: Mapping[str, frozenset[str]] | None,
) -> ReleasedPack:
    for kind in ("images", "asm"):
        if kind not in names:
            raise _unusable(f"{folder} has no {kind} archive for {pack}", f"{SUMS} names none")
    files = _members(folder / names["images"], sums, f"lib/aotriton.images/{pack}/")
    texts = _members(folder / names["asm"], sums, f"share/aotriton/asm/{pack}/")
    labels, resources = _resources(folder / names["asm"], texts.pop("resources.json", b""))
    return ReleasedPack(
        release=release,
        pack=ImagePack(name=pack, files=files),
        assembly={name.removesuffix(".s"): text.decode("ascii", "replace") for name, text in texts.items()},
        labels=labels,
        resources=resources,
        listed=None if listed is None else listed.get(pack, frozenset()),
    )


def _members(path: Path, sums: Mapping[str, str], below: str) -> dict[str, bytes]:
    """The files below a folder of a tarball, by their names relative to the folder."""
    sink = MemorySink(below=below)
    with _reading(path):
        _check_sum(path, sha256_file(path), sums)
        _read(path, sink)
    return sink.files


def _read(path: Path, sink: Sink) -> None:
    """Raises OSError, UnsafeArchiveError."""
    check = check_names(path.name)
    read_archive(file_chunks(path), sink, top=TOP, on_entry=check)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of an archive as ReleaseError."""
    try:
        yield
    except (UnsafeArchiveError, zipfile.BadZipFile) as error:
        raise _unusable(f"{path}: {error}", "the archive is damaged, or was not made by the build") from error
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror or error}", "the release is not complete") from error


def _resources(path: Path, data: bytes) -> tuple[dict[str, tuple[str, ...]], dict[str, Resources]]:
    """Labels and resources of `resources.json` by image digest."""
    labels: dict[str, list[str]] = {}
    resources: dict[str, Resources] = {}
    names = [field.name for field in fields(Resources)]
    try:
        for row in parse_json(data)["images"]:
            digest = str(row["digest"])
            _add_labels(labels.setdefault(digest, []), row["labels"])
            resources[digest] = Resources(**{name: int(row[name]) for name in names})
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        cause = str(error) if type(error) is ValueError else ""
        raise _unusable(f"{path}: resources.json is missing or not of this format", cause) from error
    return {digest: tuple(found) for digest, found in labels.items()}, resources


def _add_labels(found: list[str], more: Any) -> None:
    """Raises TypeError, ValueError."""
    if not isinstance(more, list) or not all(isinstance(label, str) for label in more):
        raise ValueError("the labels of an image are not a list of texts")
    if odd := [label for label in more if not label.isprintable()]:
        raise ValueError(f"the label {odd[0][:80]!r} has control characters or line ends")
    found += more
