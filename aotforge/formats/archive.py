"""Deterministic tar and gzip files: one time, no owner, normalised modes; no name in gzip.

As deflate differs between zlib versions, a tarball's identity is the SHA-256 of the uncompressed tar.
"""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Literal

from aotforge.base.files import new_file
from aotforge.errors import ReleaseError

GZIP_LEVEL = 9


@dataclass(frozen=True, kw_only=True)
class Member:
    """A regular file of a tarball."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Link:
    """A symbolic link; `target` is relative to the link's folder."""

    target: str


Members = Mapping[str, Member | Link]
Entry = tuple[tarfile.TarInfo, IO[bytes] | None]
"""A header, and the content of a regular file."""


class HashingFile:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Appends `data`."""
        self.hash.update(data)
        self._file.write(data)


def entry(name: str, member: Member | Link | None, *, epoch: int = 0) -> Entry:
    """A file, a link or, for None, a folder. `epoch` is its time, seconds since 1970."""
    info = tarfile.TarInfo(name)
    info.mtime = epoch
    if isinstance(member, Member):
        info.size, info.mode = len(member.content), 0o755 if member.executable else 0o644
        return info, io.BytesIO(member.content)
    if member is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    else:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.target, 0o777
    return info, None


def write_tar(
    file: BinaryIO | gzip.GzipFile, entries: Iterable[Entry], *, layout: int = tarfile.USTAR_FORMAT
) -> str:
    """Writes a tar of `entries`; returns its SHA-256. Raises ValueError for names it cannot have."""
    sink = HashingFile(file)
    with tarfile.open(fileobj=sink, mode="w|", format=layout, encoding="utf-8") as tar:  # type: ignore[call-overload]
        for info, content in entries:
            try:
                tar.addfile(info, content)
            except ValueError as error:
                raise ValueError(f"{info.name!r} cannot be a member of a tar: {error}") from error
    return sink.hash.hexdigest()


def write_tar_gz(path: Path, members: Members, *, epoch: int) -> str:
    """Writes a .tar.gz with an entry for every folder; returns the SHA-256 of its tar. `epoch`: every
    member's time, seconds since 1970. Raises ReleaseError for names that the format, USTAR, cannot have."""
    try:
        with (
            new_file(path) as file,
            gzip.GzipFile("", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file, mtime=0) as packed,
        ):
            return write_tar(packed, _with_folders(members, epoch))
    except ValueError as error:
        raise ReleaseError(f"{path.name}: {error}") from error


def _with_folders(members: Members, epoch: int) -> Iterator[Entry]:
    folders = {str(parent) for name in members for parent in PurePosixPath(name).parents} - {"."}
    # by components, so that a folder comes right before what it holds
    for name in sorted({*members, *folders}, key=lambda name: name.split("/")):
        yield entry(name, members.get(name), epoch=epoch)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def input_tree(members: Mapping[str, Path], files: Mapping[str, bytes] | None = None) -> bytes:
    """A deterministic tar of files by their names in it, and of contents in memory. Raises OSError."""
    contents = {name: path.read_bytes() for name, path in members.items()} | dict(files or {})
    runnable = {name for name, path in members.items() if path.stat().st_mode & 0o100}
    packed = io.BytesIO()
    entries = (
        entry(name, Member(content=data, executable=name in runnable))
        for name, data in sorted(contents.items())
    )
    write_tar(packed, entries, layout=tarfile.PAX_FORMAT)
    return packed.getvalue()


def unpack(archive: tarfile.TarFile, folder: Path, *, filter: Literal["data", "tar"] = "data") -> None:
    """Unpacks what a step or this program made, by tarfile's filter: `data` drops owners, `tar` is for a
    rootfs."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter=filter)
        return
    for member in archive.getmembers():  # Python 3.11.2, Debian 12's, has no filters
        member.mode &= 0o755
        if filter == "data":
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            member.mode |= 0o755 if member.isdir() else 0o600
    archive.extractall(folder)
