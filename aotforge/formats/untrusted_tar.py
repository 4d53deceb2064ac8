"""Reader of untrusted tar archives: every entry is checked before it reaches the sink.

Accepted are regular files, folders and links to the same folder or below. `tarfile` parses the headers. Names
and links are checked here, more strictly than by its data filter, which removes the slash of an absolute name,
permits hard links and needs Python 3.11.4.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from aotforge.formats.untrusted_file import MEMBERS_LIMIT, UNPACKED_LIMIT, open_regular

_BLOCK = 512
_PIECE = 1024 * 1024
_GZIP = 31  # zlib's window bits for a gzip header and trailer (RFC 1952)
_NAME_BYTES = 255
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.XHDTYPE: "an extended header",
    tarfile.XGLTYPE: "a global extended header",
    tarfile.GNUTYPE_LONGNAME: "a GNU long name",
    tarfile.GNUTYPE_LONGLINK: "a GNU long link",
}


class UnsafeArchiveError(Exception):
    """Why an archive is refused; the text fits after the archive's name and a colon."""


@dataclass(frozen=True, kw_only=True)
class TarFacts:
    """Of a tar: SHA-256 (hexadecimal) and bytes of the uncompressed tar, and its number of entries and of folders that only their
    names imply."""

    sha256: str
    size: int
    members: int


@dataclass(frozen=True, kw_only=True)
class ArchiveFacts:
    """SHA-256 and bytes of the compressed file, and what is in it."""

    sha256: str
    size: int
    tar: TarFacts


LIMITS = TarFacts(sha256="", size=UNPACKED_LIMIT, members=MEMBERS_LIMIT)
"""Bounds for an archive that no index describes."""

OWN_LIMITS = TarFacts(sha256="", size=64 * 1024**3, members=1_000_000)
"""Bounds for a tar of a step or shard of this build."""

_FREE, _RATIO = 16 * 1024**2, 40
"""Bytes that an archive unpacks to at most: free, and for each compressed byte that was read.

Images are compressed already and assembly texts shrink by 10 to 24; deflate alone could reach 1,032.
"""


class Sink(Protocol):
    """Receives the entries; paths are relative, checked, and without the top folder."""

    def folder(self, path: PurePosixPath) -> None:
        """A folder."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """A regular file; `pieces` must be used up."""

    def link(self, path: PurePosixPath, target: str) -> None:
        """A symbolic link to something in or below its own folder."""


class NoSink:
    """Reads and checks only."""

    def folder(self, path: PurePosixPath) -> None:
        """Nothing."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Reads over it."""
        for _ in pieces:
            pass

    def link(self, path: PurePosixPath, target: str) -> None:
        """Nothing."""


def file_chunks(path: Path, start: int = 0) -> Iterator[bytes]:
    """A file's bytes from `start` on, piece by piece. Raises OSError."""
    with open_regular(path) as file:
        file.seek(start)
        while chunk := file.read(_PIECE):
            yield chunk


def read_archive(
    chunks: Iterable[bytes],
    sink: Sink,
    *,
    bounds: TarFacts = LIMITS,
    top: str | None = "",
    on_bytes: Callable[[int], None] | None = None,
    on_entry: Callable[[tarfile.TarInfo], None] | None = None,
) -> ArchiveFacts:
    """Reads a .tar.gz with one top folder into `sink`: any name for "", and for None there need not be one and paths keep it.

    `bounds` has the most bytes and members of the tar; `on_bytes` receives numbers of compressed bytes, `on_entry` checked headers.
    Raises UnsafeArchiveError; what `sink` has made by then must be deleted.
    """
    stream = _Inflated(chunks, bounds.size, on_bytes)
    tar = _read(stream, sink, bounds, _EntryCheck(top), on_entry)
    if not tar.members:
        raise UnsafeArchiveError("it has no entries")
    return ArchiveFacts(sha256=stream.file.hexdigest(), size=stream.file_size, tar=tar)


def read_tar(
    chunks: Iterable[bytes],
    sink: Sink,
    *,
    bounds: TarFacts = OWN_LIMITS,
    on_entry: Callable[[tarfile.TarInfo], None] | None = None,
) -> TarFacts:
    """Reads an uncompressed tar without a top folder into `sink`. Raises UnsafeArchiveError as `read_archive` does."""
    return _read(_Stream(chunks, bounds.size), sink, bounds, _EntryCheck(None), on_entry)


def _read(
    stream: _Stream,
    sink: Sink,
    bounds: TarFacts,
    check: _EntryCheck,
    on_entry: Callable[[tarfile.TarInfo], None] | None,
) -> TarFacts:
    entries = members = 0
    while (block := stream.take(_BLOCK)).strip(b"\0"):
        entries += 1
        info = _header(block)
        if info.size > bounds.size:  # before anything is read for it
            raise UnsafeArchiveError(
                f"{info.name!r} has {info.size} bytes, more than the expected {bounds.size}"
            )
        path = check.entry(info)
        members = max(entries, check.paths)  # a name of 255 bytes can imply 120 folders
        if members > bounds.members:
            raise UnsafeArchiveError(f"it has more than the expected {bounds.members} entries and folders")
        if on_entry:
            on_entry(info)
        if info.isdir():
            if path is not None:
                sink.folder(path)
        elif path is None:
            raise UnsafeArchiveError(f"{info.name!r} is not in a top folder")
        elif info.issym():
            sink.link(path, info.linkname)
        else:
            sink.file(path, executable=bool(info.mode & 0o100), pieces=stream.pieces(info.size))
            if stream.take(-info.size % _BLOCK).strip(b"\0"):
                raise UnsafeArchiveError(f"the padding after {info.name!r} is not zero")
    stream.finish()
    return TarFacts(sha256=stream.tar.hexdigest(), size=stream.size, members=members)


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
        raise UnsafeArchiveError(f"a header is damaged ({error})") from None
    if info.type not in {tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}:
        kind = _KINDS.get(info.type, f"an entry of type {info.type!r}")
        raise UnsafeArchiveError(f"{info.name!r} is {kind}")
    if info.size < 0 or (info.size and not info.isreg()):
        raise UnsafeArchiveError(f"{info.name!r} has an invalid size of {info.size} bytes")
    return info


class _EntryCheck:
    """Remembers the entries, so that none occurs twice or below a file or a link. `top`: see `read_archive`; None for none."""

    def __init__(self, top: str | None) -> None:
        self._top = top
        self._seen: dict[str, bool] = {}  # by path, which takes far less memory as a string; True for folders

    @property
    def paths(self) -> int:
        """How many files, links and folders there are, with folders that the names of others imply."""
        return len(self._seen)

    def entry(self, info: tarfile.TarInfo) -> PurePosixPath | None:
        """The path below the top folder; None for the top folder itself."""
        parts = _parts(info.name.removesuffix("/") if info.isdir() else info.name, repr(info.name))
        if self._top is not None:
            self._top = self._top or parts[0]
            if parts[0] != self._top:
                raise UnsafeArchiveError(f"{parts[0]!r} is outside the top folder {self._top!r}")
            parts = parts[1:]
        path = "/".join(parts)
        if not parts:
            if info.isdir():
                self._add(path, info)
            return None
        parent = path
        while parent := parent.rpartition("/")[0]:
            if not self._seen.setdefault(parent, True):
                raise UnsafeArchiveError(f"{info.name!r} is below an entry that is not a folder")
        self._add(path, info)
        if info.issym():
            _parts(info.linkname, f"the target {info.linkname!r} of the link {info.name!r}")
        return PurePosixPath(path)

    def _add(self, path: str, info: tarfile.TarInfo) -> None:
        # a folder may have been implied by what is in it, once
        known = self._seen.get(path)
        if known is False or (known is True and not info.isdir()):
            raise UnsafeArchiveError(f"{info.name!r} occurs twice")
        self._seen[path] = info.isdir()


def _parts(name: str, subject: str) -> tuple[str, ...]:
    """Components of a relative path. Raises UnsafeArchiveError about `subject`."""
    if name.startswith("/"):
        raise UnsafeArchiveError(f"{subject} is an absolute path")
    parts = tuple(name.split("/"))
    if ".." in parts:
        raise UnsafeArchiveError(f"{subject} is outside its folder")
    for part in parts:
        if part in {"", "."} or "\\" in part or not part.isprintable() or len(part.encode()) > _NAME_BYTES:
            raise UnsafeArchiveError(f"{subject} is not a plain path")
    return parts


class _Stream:
    """An uncompressed tar: exact reads, its digest on the way, never more than `limit` bytes."""

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self._chunks = iter(chunks)
        self._limit = limit
        self._ready = b""
        self._at = 0
        self.tar = hashlib.sha256()
        self.size = 0

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly `count` bytes, piece by piece."""
        while count:
            if self._at == len(self._ready) and not self._more():
                raise UnsafeArchiveError("the tar is truncated")
            piece = self._ready[self._at : self._at + count]
            self._at += len(piece)
            count -= len(piece)
            yield piece

    def finish(self) -> None:
        """Only zeros may follow the tar's end marker."""
        rest = self._ready[self._at :]
        while True:
            if rest.strip(b"\0"):
                raise UnsafeArchiveError("there is data after the end of the tar")
            if not self._more():
                return
            rest = self._ready

    def _more(self) -> bool:
        """Fills the buffer; False at the end."""
        piece = next(filter(None, self._chunks), b"")
        self._accept(piece)
        return bool(piece)

    def _accept(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise UnsafeArchiveError(f"it unpacks to more than the expected {self._limit} bytes")
        self.tar.update(piece)
        self._ready, self._at = piece, 0


class _Inflated(_Stream):
    """The tar inside gzip, little of it in memory; counts and hashes the compressed bytes too."""

    def __init__(self, chunks: Iterable[bytes], limit: int, on_bytes: Callable[[int], None] | None) -> None:
        super().__init__(chunks, limit)
        self._on_bytes = on_bytes
        self._zlib = zlib.decompressobj(_GZIP)
        self.file = hashlib.sha256()
        self.file_size = 0

    def finish(self) -> None:
        """Nothing may follow gzip's own end either."""
        super().finish()
        if self._zlib.unused_data or any(self._counted(chunk) for chunk in self._chunks):
            raise UnsafeArchiveError("there is data after the end of the archive")

    def _counted(self, chunk: bytes) -> bytes:
        self.file.update(chunk)
        self.file_size += len(chunk)
        if self._on_bytes:
            self._on_bytes(len(chunk))
        return chunk

    def _more(self) -> bool:
        try:
            while not self._zlib.eof:
                data = self._zlib.unconsumed_tail
                if not data:
                    chunk = next(self._chunks, None)
                    if chunk is None:
                        raise UnsafeArchiveError("the gzip file is truncated")
                    data = self._counted(chunk)
                if piece := self._zlib.decompress(data, _PIECE):
                    self._accept(piece)
                    read = self.file_size - len(self._zlib.unconsumed_tail)
                    if self.size > (most := _FREE + _RATIO * read):
                        raise UnsafeArchiveError(
                            f"its first {read} bytes unpack to more than the expected {most} bytes"
                        )
                    return True
        except zlib.error as error:
            raise UnsafeArchiveError(f"it is not a complete gzip file ({error})") from None
        return False
