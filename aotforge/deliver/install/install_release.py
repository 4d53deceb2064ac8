"""Installing: choose by the checked index, fetch what is needed, unpack beside the place while checking, move there in one step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aotforge.base.files import output_errors, output_lock, staged_folder
from aotforge.deliver.install.choose import choose_files, choose_release
from aotforge.deliver.install.model import DropIn, Installation, InstallRequest, Machine
from aotforge.deliver.install.prefix import (
    Record,
    changed_files,
    check_foreign,
    read_record,
    real_prefix,
    write_record,
)
from aotforge.deliver.install.unpack import FolderSink, unpack
from aotforge.errors import InstallError, TrustError
from aotforge.formats.sums import SUMS, TAR_SUMS, parse_sums
from aotforge.publish.fetch import fetch_file
from aotforge.publish.index_model import Index, IndexedFile, IndexedRelease
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import Reader, StoreError, read_chunks, read_small
from aotforge.publish.upload import OnProgress, byte_counter

_SUMS_LIMIT = 16 * 1024 * 1024


@contextmanager
def install_errors() -> Iterator[None]:
    """A store's fault as InstallError."""
    try:
        yield
    except StoreError as fault:
        raise InstallError(fault.what, cause=fault.cause, hint=fault.hint) from fault


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
    """Installs into `request.prefix`, or hands an unpacked release to `drop_in` for `request.torch_lib`. `index` must have been checked
    (`publish.trust`). `downloads`: folder where downloads are kept, whole and begun ones.

    Raises UnknownNameError, InstallError, TrustError, OutputError; on any of them what was installed is as it was.
    """
    release, notes = choose_release(index, request)
    with install_errors():
        if request.prefix is not None:
            prefix = real_prefix(request.prefix)
            with output_lock(prefix):
                return _prefix(reader, release, request, machine, prefix, notes, downloads, on_progress)
        if request.torch_lib is None or drop_in is None:
            raise InstallError(
                "there is no place to install to", hint="--prefix DIR or --pytorch-lib TORCH/LIB"
            )
        files, more = choose_files(release, request, machine)
        with output_errors(downloads):
            downloads.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="unpacked-", dir=downloads) as scratch,
            output_errors(Path(scratch)),
        ):
            _unpack_all(reader, release, files, Path(scratch), downloads, on_progress)
            drop_in(Path(scratch), release.name, request.torch_lib)
    return _installation(
        release, request.torch_lib, tuple(request.packs), files, reader, (*notes, *more), fresh=True
    )


def _prefix(
    reader: Reader, release: IndexedRelease, request: InstallRequest, machine: Machine,
    prefix: Path, notes: tuple[str, ...], downloads: Path, on_progress: OnProgress,
) -> Installation:  # fmt: skip
    record = read_record(prefix)
    packs = dict(request.packs)
    if record:
        check_foreign(prefix, record)
        if record.release == release.name:
            packs = {**record.chips, **packs}  # chips add up
        else:
            notes += (f"{record.release} was replaced",)
    wanted = InstallRequest(packs=packs, version=request.version, rocm=request.rocm, prefix=prefix)
    files, more = choose_files(release, wanted, machine)
    archives = {file.name: file.sha256 for file in files}
    if record and record.release == release.name:
        changed = changed_files(prefix, record)
        if record.archives == archives and not changed:
            return _installation(release, prefix, tuple(packs), files, reader, (*notes, *more), fresh=False)
        notes += tuple(f"{prefix / name} was changed or missing and is as released again" for name in changed)
    with staged_folder(prefix) as staged:
        made = _unpack_all(reader, release, files, staged, downloads, on_progress)
        write_record(staged, Record(release=release.name, chips=packs, archives=archives, files=made))
    return _installation(release, prefix, tuple(packs), files, reader, (*notes, *more), fresh=True)


def _unpack_all(
    reader: Reader,
    release: IndexedRelease,
    files: list[IndexedFile],
    folder: Path,
    downloads: Path,
    on_progress: OnProgress,
) -> dict[str, str]:
    """Checks the sums, fetches and unpacks; what was made, as Record has it."""
    _check_sums(reader, release, files)
    total = sum(file.size for file in files)
    sources = [
        _source(reader, release, file, downloads, byte_counter(on_progress, "downloading", total))
        for file in files
    ]
    sink = FolderSink(root=folder)
    count = byte_counter(on_progress, "unpacking", total)
    for file, (where, chunks) in zip(files, sources, strict=True):
        unpack(file, where, chunks, sink, on_bytes=count)
    return sink.made


def _source(
    reader: Reader, release: IndexedRelease, file: IndexedFile, downloads: Path, count: Callable[[int], None]
) -> tuple[str, Iterable[bytes]]:
    """An archive's bytes: from a folder as they lie, from elsewhere downloaded first, so that a broken connection costs nothing."""
    name = f"{release.name}/{file.name}"
    if isinstance(reader, DirectoryStore):
        return f"{reader.url}/{name}", reader.read(name)
    path = fetch_file(reader, name, file, downloads, on_bytes=count)
    return str(path), read_chunks(path)


def _check_sums(reader: Reader, release: IndexedRelease, files: list[IndexedFile]) -> None:
    """The release's own sums must be the index's: whoever checks with `sha256sum -c` gets the same answer. Raises TrustError."""
    for sums_name, suffix in ((SUMS, ""), (TAR_SUMS, ".gz")):
        listed = release.file(sums_name)
        if listed is None:
            raise TrustError(f"{release.name} has no {sums_name} in the index", hint="tell the publisher")
        data = read_small(reader, f"{release.name}/{sums_name}", limit=_SUMS_LIMIT)
        if not _is(data, listed):
            raise TrustError(
                f"{reader.url}/{release.name}/{sums_name} is not what the index says",
                cause="it was changed, or belongs to another release",
                hint="nothing was installed; use another mirror, and tell the publisher",
            )
        try:
            sums = parse_sums(data.decode(errors="replace"))
        except ValueError as error:
            raise TrustError(
                f"{sums_name} of {release.name}: {error}", hint="nothing was installed; tell the publisher"
            ) from None
        for file in files:
            said = file.sha256 if not suffix else file.tar.sha256 if file.tar else ""
            if sums.get(file.name.removesuffix(suffix) if suffix else file.name) != said:
                raise TrustError(
                    f"{sums_name} of {release.name} and the index differ about {file.name}",
                    cause="parts of two releases were mixed when it was published",
                    hint="nothing was installed; tell the publisher",
                )


def _is(data: bytes, file: IndexedFile) -> bool:
    import hashlib  # noqa: PLC0415

    return (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


def _installation(
    release: IndexedRelease, place: Path, chips: tuple[str, ...], files: list[IndexedFile],
    reader: Reader, notes: tuple[str, ...], *, fresh: bool,
) -> Installation:  # fmt: skip
    return Installation(
        release=release.name, place=place, chips=chips, files=tuple(file.name for file in files),
        source=reader.url, fresh=fresh, notes=notes,
    )  # fmt: skip
