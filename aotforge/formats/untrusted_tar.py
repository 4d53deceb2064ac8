"""Reading a .tar.gz that nobody vouches for yet: one pass over its bytes, every entry judged before anything is made of it.

Python's tarfile gained its filters in 3.11.4 only, and reads whole extended headers into memory; an archive here holds regular files, folders
and links to what lies beside or below them, in plain ustar (POSIX.1-1988) under one top folder, or it is refused.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

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
    """Of an archive: SHA-256 (hexadecimal) and bytes of the uncompressed tar, and its number of entries."""

    sha256: str
    size: int
    members: int


@dataclass(frozen=True, kw_only=True)
class ArchiveFacts:
    """SHA-256 and bytes of the compressed file, and what is in it."""

    sha256: str
    size: int
    tar: TarFacts


LIMITS = TarFacts(sha256="", size=64 * 1024**3, members=1_000_000)
"""Bounds for an archive that no index describes: 64 GiB, a million entries."""


class Sink(Protocol):
    """What becomes of the entries; paths are relative to the top folder, which is left out, and safe to be joined to a folder."""

    def folder(self, path: PurePosixPath) -> None:
        """A folder."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """A regular file; `pieces` must be used up."""

    def link(self, path: PurePosixPath, target: str) -> None:
        """A symbolic link to something in or below its own folder."""


class NoSink:
    """Reads and judges only."""

    def folder(self, path: PurePosixPath) -> None:
        """Nothing."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Reads over it."""
        for _ in pieces:
            pass

    def link(self, path: PurePosixPath, target: str) -> None:
        """Nothing."""


def read_archive(
    chunks: Iterable[bytes],
    sink: Sink,
    *,
    bounds: TarFacts = LIMITS,
    on_bytes: Callable[[int], None] | None = None,
) -> ArchiveFacts:
    """Hands every entry to `sink` and tells what was read. `bounds` has the most bytes and entries of the tar; `on_bytes` hears of
    compressed bytes. Raises UnsafeArchiveError; what `sink` has made by then must be thrown away.
    """
    stream = _Inflated(chunks, bounds.size, on_bytes)
    judge = _Judge()
    members = 0
    while (block := stream.take(_BLOCK)).strip(b"\0"):
        members += 1
        if members > bounds.members:
            raise UnsafeArchiveError(f"more entries than the {bounds.members} that it should have")
        info = _header(block)
        path = judge.entry(info)
        if info.isdir():
            if path is not None:
                sink.folder(path)
        elif path is None:
            raise UnsafeArchiveError(
                f"{info.name!r} is no folder, and nothing but a top folder may lie at the top"
            )
        elif info.issym():
            sink.link(path, info.linkname)
        else:
            sink.file(path, executable=bool(info.mode & 0o100), pieces=stream.pieces(info.size))
            if stream.take(-info.size % _BLOCK).strip(b"\0"):
                raise UnsafeArchiveError(f"padding after {info.name!r} is not zero")
    if not members:
        raise UnsafeArchiveError("it is empty")
    stream.finish()
    tar = TarFacts(sha256=stream.tar.hexdigest(), size=stream.size, members=members)
    return ArchiveFacts(sha256=stream.file.hexdigest(), size=stream.file_size, tar=tar)


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
        raise UnsafeArchiveError(f"a header is damaged ({error})") from None
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}:
        raise UnsafeArchiveError(
            f"{info.name!r} is {_KINDS.get(info.type, f'an entry of type {info.type!r}')}"
        )
    if info.size < 0 or (info.size and not info.isreg()):
        raise UnsafeArchiveError(f"{info.name!r} says that it has {info.size} bytes")
    return info


class _Judge:
    """Remembers what was there, so that nothing lies twice, nor below a file or a link."""

    def __init__(self) -> None:
        self._top = ""
        self._seen: dict[PurePosixPath, bool] = {}  # True for folders

    def entry(self, info: tarfile.TarInfo) -> PurePosixPath | None:
        """The path below the top folder; None for the top folder itself."""
        parts = self._parts(info.name.removesuffix("/") if info.isdir() else info.name)
        self._top = self._top or parts[0]
        if parts[0] != self._top:
            raise UnsafeArchiveError(f"{parts[0]!r} lies beside {self._top!r}: one top folder is allowed")
        path = PurePosixPath(*parts[1:])
        if len(parts) == 1:
            if info.isdir():
                self._new(path, info)
            return None
        for parent in path.parents:
            if self._seen.get(parent, True) is False:
                raise UnsafeArchiveError(f"{info.name!r} lies below something that is no folder")
            self._seen.setdefault(parent, True)
        self._new(path, info)
        if info.issym():
            target = self._parts(info.linkname, what=f"the link {info.name!r} leads to ")
            if not target:
                raise UnsafeArchiveError(f"the link {info.name!r} leads nowhere")
        return path

    def _new(self, path: PurePosixPath, info: tarfile.TarInfo) -> None:
        # a folder may have been implied by what lies in it, once
        known = self._seen.get(path)
        if known is False or (known is True and not info.isdir()):
            raise UnsafeArchiveError(f"{info.name!r} is in it twice")
        self._seen[path] = info.isdir()

    @staticmethod
    def _parts(name: str, what: str = "") -> tuple[str, ...]:
        if name.startswith("/"):
            raise UnsafeArchiveError(f"{what}{name!r}, which is an absolute path")
        parts = tuple(name.split("/"))
        for part in parts:
            if part == "..":
                raise UnsafeArchiveError(f"{what}{name!r}, which leads out of its folder")
            if (
                part in {"", "."}
                or "\\" in part
                or not part.isprintable()
                or len(part.encode()) > _NAME_BYTES
            ):
                raise UnsafeArchiveError(f"{what}{name!r}, which is no plain path")
        return parts


class _Inflated:
    """The tar inside gzip: exact reads, digests of both on the way, never more than `limit` bytes nor much of it in memory."""

    def __init__(self, chunks: Iterable[bytes], limit: int, on_bytes: Callable[[int], None] | None) -> None:
        self._chunks = iter(chunks)
        self._limit = limit
        self._on_bytes = on_bytes
        self._zlib = zlib.decompressobj(_GZIP)
        self._ready = b""
        self._at = 0
        self.tar, self.file = hashlib.sha256(), hashlib.sha256()
        self.size = self.file_size = 0

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly `count` bytes, piece by piece."""
        while count:
            if self._at == len(self._ready) and not self._more():
                raise UnsafeArchiveError("it ends too early")
            piece = self._ready[self._at : self._at + count]
            self._at += len(piece)
            count -= len(piece)
            yield piece

    def finish(self) -> None:
        """After the tar's end marker only zeros may follow, and nothing after gzip's own end."""
        rest = self._ready[self._at :]
        while True:
            if rest.strip(b"\0"):
                raise UnsafeArchiveError("something follows the end of the tar")
            if not self._more():
                break
            rest = self._ready
        if self._zlib.unused_data or any(self._counted(chunk) for chunk in self._chunks):
            raise UnsafeArchiveError("something follows the end of the archive")

    def _counted(self, chunk: bytes) -> bytes:
        self.file.update(chunk)
        self.file_size += len(chunk)
        if self._on_bytes:
            self._on_bytes(len(chunk))
        return chunk

    def _more(self) -> bool:
        """Fills the buffer; False at gzip's end."""
        try:
            while not self._zlib.eof:
                data = self._zlib.unconsumed_tail
                if not data:
                    chunk = next(self._chunks, None)
                    if chunk is None:
                        raise UnsafeArchiveError("it is cut off")
                    data = self._counted(chunk)
                piece = self._zlib.decompress(data, _PIECE)
                if piece:
                    self.size += len(piece)
                    if self.size > self._limit:
                        raise UnsafeArchiveError(
                            f"it unpacks to more than the {self._limit} bytes that it should have"
                        )
                    self.tar.update(piece)
                    self._ready, self._at = piece, 0
                    return True
        except zlib.error as error:
            raise UnsafeArchiveError(f"it is no whole gzip file ({error})") from None
        return False
