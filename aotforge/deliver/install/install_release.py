"""Installs a published release: downloads, checks, unpacks, then replaces the prefix in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aotforge.base.files import (
    link_or_copy,
    make_folders,
    output_errors,
    output_lock,
    scratch_folder,
    staged_folder,
)
from aotforge.base.progress import OnProgress, byte_counter
from aotforge.deliver.install.choose import InstallRequest, Machine, choose_files, choose_release
from aotforge.deliver.install.prefix import (
    RECORD,
    InstallRecord,
    changed_files,
    check_other_files,
    read_record,
    real_prefix,
    write_record,
)
from aotforge.errors import InstallError, TrustError
from aotforge.formats.artifact_names import ArtifactName
from aotforge.formats.sums import SUMS
from aotforge.formats.tar_reader import FolderWriter, UnsafeArchiveError, read_archive
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index import Index, IndexedFile, IndexedRelease
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import Reader, StoreError
from aotforge.release.layout import TOP
from aotforge.release.model import MANIFEST

Extract = Callable[[list[IndexedFile], Path], dict[str, str]]
DropIn = Callable[[Path, str, Path], object]
"""Puts a release into an installed PyTorch: (unpacked prefix, release name, torch/lib). Raises
AotforgeError."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The installed release. `files`: names of its archives; `fresh` is False when everything was installed
    already."""

    release: str
    place: Path
    archs: tuple[str, ...]
    files: tuple[str, ...]
    source: str
    fresh: bool
    notes: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self) | {"place": str(self.place)}

    def lines(self) -> list[str]:
        """Lines of text."""
        state = "is in" if self.fresh else "was already in"
        return [f"{self.release} for {', '.join(self.archs)} {state} {self.place}"]


@contextmanager
def install_errors() -> Iterator[None]:
    """A store's error as InstallError."""
    try:
        yield
    except StoreError as error:
        raise InstallError(error.what, cause=error.cause, hint=error.hint) from error


def install(
    reader: Reader,
    index: Index,
    request: InstallRequest,
    machine: Machine,
    *,
    downloads: Path,
    drop_in: DropIn | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Installation:
    """Installs into `request.prefix`, or passes an unpacked release to `drop_in` for `request.torch_lib`.

    `index` must have been checked (`publish.trust`). `downloads`: folder of complete and partial downloads.
    Raises UnknownNameError, InstallError, TrustError, OutputError; an earlier installation is then unchanged.
    """
    release, notes = choose_release(index, request)
    archs, fresh = tuple(request.packs), True

    def path(file: IndexedFile, count: Callable[[int], None]) -> Path:
        """An archive: read in place from a folder, else downloaded first, so that it can resume."""
        name = f"{release.name}/{file.name}"
        if isinstance(reader, DirectoryStore):
            return Path(reader.url, name)
        return fetch_file(reader, name, file, downloads, on_bytes=count)

    def extract(files: list[IndexedFile], target: Path) -> dict[str, str]:
        """The files below `target`, as InstallRecord has them."""
        total, sink = sum(file.size for file in files), FolderWriter(root=target)
        count = byte_counter(on_progress, "downloading", total)
        paths = [path(file, count) for file in files]
        count = byte_counter(on_progress, "unpacking", total)
        for file, archive in zip(files, paths, strict=True):
            unpack(file, archive, sink, on_bytes=count)
        return sink.made

    with install_errors():
        if request.prefix is not None:
            place = real_prefix(request.prefix)
            with output_lock(place):
                archs, files, more, fresh = _install_prefix(release, extract, request, machine, place)
        else:
            assert request.torch_lib is not None and drop_in is not None
            place = request.torch_lib
            files, more = choose_files(release, request, machine)
            with scratch_folder(downloads, "unpacked-") as scratch, output_errors(scratch):
                extract(files, scratch)
                drop_in(scratch, release.name, place)
    return Installation(
        release=release.name,
        place=place,
        archs=archs,
        files=tuple(file.name for file in files),
        source=reader.url,
        fresh=fresh,
        notes=(*notes, *more),
    )


def _install_prefix(
    release: IndexedRelease, extract: Extract, request: InstallRequest, machine: Machine, prefix: Path
) -> tuple[tuple[str, ...], list[IndexedFile], tuple[str, ...], bool]:
    """Archs and archives of the tree, notes, and whether it was changed."""
    record, packs, notes = read_record(prefix), dict(request.packs), tuple[str, ...]()
    if record:
        check_other_files(prefix, record)
        if record.release == release.name:
            packs = {**record.archs, **packs}  # an arch is added to the installed ones
        else:
            notes += (f"{record.release} was replaced",)
    files, more = choose_files(release, replace(request, packs=packs), machine)
    archives, notes = {file.name: file.sha256 for file in files}, (*notes, *more)
    if record and record.release == release.name:
        changed = changed_files(prefix, record)
        if record.archives == archives and not changed:
            return tuple(packs), files, notes, False
        notes += tuple(f"{prefix / name} was changed or missing and is restored" for name in changed)
    with staged_folder(prefix) as staged:
        made = extract(files, staged)
        if RECORD in made:
            raise InstallError(
                f"release {release.name} holds {RECORD}, which only an installation has",
                cause="its archives were not made by this program",
                hint="choose another release",
            )
        write_record(staged, InstallRecord(release=release.name, archs=packs, archives=archives, files=made))
    return tuple(packs), files, notes, True


def unpack(
    file: IndexedFile, path: Path, sink: FolderWriter, *, on_bytes: Callable[[int], None] | None = None
) -> None:
    """Unpacks an archive and compares size and SHA-256 of it and of the tar inside with the index.

    Raises InstallError, TrustError; the caller then discards what the sink has made.
    """
    if file.tar is None:
        what = f"the index does not describe the contents of {file.name}"
        raise TrustError(what, hint="report this to the publisher")
    try:
        facts = read_archive(path, sink, top=TOP, bounds=file.tar, on_bytes=on_bytes)
        if (facts.size, facts.sha256, facts.tar) != (file.size, file.sha256, file.tar):
            raise UnsafeArchiveError("it does not match the index")
    except FileNotFoundError:
        raise InstallError(f"{path} does not exist", hint="publish the release again") from None
    except UnsafeArchiveError as error:
        raise TrustError(
            f"{path} is refused: {error}",
            cause="it was changed or cut off there or on the way",
            hint="nothing was installed; use another mirror, and report this to the publisher",
        ) from None


@install_errors()
def fetch_pack(
    reader: Reader,
    index: Index,
    *,
    version: str | None,
    arch: str,
    pack: str,
    downloads: Path,
    folder: Path,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> tuple[Path, tuple[str, ...]]:
    """`folder`/<release> with the pack's images and texts, MANIFEST.json and SHA256SUMS, and notes on the
    release.

    `index` must have been checked. Raises UnknownNameError, InstallError, TrustError, OutputError.
    """
    release, notes = choose_release(index, InstallRequest(packs={arch: pack}, version=version))
    files = []
    archives = [ArtifactName(release=release.name, kind=kind, pack=pack) for kind in ("images", "asm")]
    for name in (SUMS, MANIFEST, *map(str, archives)):
        if (file := release.file(name)) is None:
            raise InstallError(
                f"{release.name} has no file {name}",
                cause=f"it has no images for {arch}, or was published without assembly texts",
                hint="./dev release.list shows the packs of every release; --version names one",
            )
        files.append(file)
    count = byte_counter(on_progress, "downloading", sum(file.size for file in files))
    target = folder / release.name
    make_folders(target)
    for file in files:
        path = fetch_file(reader, f"{release.name}/{file.name}", file, downloads, on_bytes=count)
        with output_errors(target):
            link_or_copy(path, target / file.name)
    return target, notes
