"""Bounded reader of tar archives: regular files, folders and links that lead inward.

Not `tarfile.data_filter`: it permits hard links, strips the slash of absolute names, and has no bounds.
"""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from aotforge.formats.untrusted_file import MEMBERS_LIMIT, UNPACKED_LIMIT

_CHUNK = 1024 * 1024
_BLOCK = 512
_NAME_BYTES = 255


class UnsafeArchiveError(Exception):
    """Why an archive is refused; the text fits after the archive's name and a colon."""


@dataclass(frozen=True, kw_only=True)
class TarFacts:
    """Of a tar: SHA-256 (hexadecimal) and bytes of the uncompressed tar, and its number of entries."""

    sha256: str
    size: int
    members: int


@dataclass(frozen=True, kw_only=True)
class ArchiveFacts:
    """SHA-256 and bytes of the compressed file, and its contents."""

    sha256: str
    size: int
    tar: TarFacts


LIMITS = TarFacts(sha256="", size=UNPACKED_LIMIT, members=MEMBERS_LIMIT)
"""Bounds of an archive that no index describes."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A checked entry: `path` below the top folder, and the `content` of a regular file."""

    path: PurePosixPath
    info: tarfile.TarInfo
    content: IO[bytes] | None


Visit = Callable[[Entry], object]
"""Receives each entry; content that it does not read is skipped."""


def skip(entry: Entry) -> None:
    """A visitor that keeps nothing: the archive is checked only."""


def file_chunks(path: Path, start: int = 0) -> Iterator[bytes]:
    """A file's bytes from `start` on, piece by piece. Raises OSError."""
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            yield chunk


def read_archive(
    source: Path | Iterable[bytes],
    visit: Visit = skip,
    *,
    top: str = "",
    bounds: TarFacts = LIMITS,
    on_bytes: Callable[[int], None] | None = None,
) -> ArchiveFacts:
    """Visits the entries of a .tar.gz, all of them below the folder `top` if one is named.

    `on_bytes` receives numbers of compressed bytes. Raises OSError, UnsafeArchiveError; what `visit` has made
    by then must be deleted.
    """
    chunks = file_chunks(source) if isinstance(source, Path) else source
    packed = _ChunkFile(chunks, on_bytes=on_bytes)
    with _damage(), gzip.GzipFile(fileobj=io.BufferedReader(packed), mode="rb") as file:
        tar = _read(iter(partial(file.read, _CHUNK), b""), visit, top, bounds)
    if not tar.members:
        raise UnsafeArchiveError("it has no entries")
    return ArchiveFacts(sha256=packed.hash.hexdigest(), size=packed.size, tar=tar)


def _read(chunks: Iterable[bytes], visit: Visit, top: str, bounds: TarFacts) -> TarFacts:
    file, members = _ChunkFile(chunks, limit=bounds.size), 0
    with tarfile.open(fileobj=file, mode="r|", bufsize=_CHUNK, encoding="utf-8") as tar:
        for info in tar:
            members += 1
            if members > bounds.members:
                raise UnsafeArchiveError(f"it has more than the expected {bounds.members} entries")
            path = _checked(info, top)
            if info.size > bounds.size:
                raise UnsafeArchiveError(f"{info.name!r} has more than the expected {bounds.size} bytes")
            if path.parts:
                visit(Entry(path=path, info=info, content=tar.extractfile(info) if info.isreg() else None))
            tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header otherwise
        while file.read(_CHUNK):
            pass
        # tarfile takes a damaged header for the end
        if file.used > tar.offset:
            raise UnsafeArchiveError("a header is damaged, or there is data after the end of the tar")
        if file.size < tar.offset + _BLOCK:
            raise UnsafeArchiveError("the tar is truncated")
    return TarFacts(sha256=file.hash.hexdigest(), size=file.size, members=members)


@contextmanager
def _damage() -> Iterator[None]:
    """Converts what `tarfile` and `gzip` raise for damaged files to UnsafeArchiveError."""
    try:
        yield
    except (EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise UnsafeArchiveError(f"it is truncated or damaged ({error})") from error
    except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
        raise UnsafeArchiveError(f"a header is damaged ({error})") from error


def _checked(info: tarfile.TarInfo, top: str) -> PurePosixPath:
    """The path of an entry below `top`. Raises UnsafeArchiveError."""
    if info.issparse() or not (info.isreg() or info.isdir() or info.issym()):
        kind = "a hard link" if info.islnk() else "a sparse file" if info.issparse() else "a special file"
        raise UnsafeArchiveError(f"{info.name!r} is {kind}")
    if info.size < 0 or (info.size and not info.isreg()):
        raise UnsafeArchiveError(f"{info.name!r} has an invalid size of {info.size} bytes")
    _check_path(info.name, repr(info.name))
    if info.issym():
        _check_path(info.linkname, f"the target {info.linkname!r} of the link {info.name!r}")
    path = PurePosixPath(info.name)
    if not top:
        return path
    if path.parts[0] != top or (len(path.parts) == 1 and not info.isdir()):
        raise UnsafeArchiveError(f"{info.name!r} is outside the top folder {top!r}")
    return path.relative_to(top)


def _check_path(name: str, subject: str) -> None:
    """Refuses what is not a plain relative path. Raises UnsafeArchiveError about `subject`."""
    if name.startswith("/"):
        raise UnsafeArchiveError(f"{subject} is an absolute path")
    for part in name.split("/"):
        if part == "..":
            raise UnsafeArchiveError(f"{subject} is outside its folder")
        if part in {"", "."} or "\\" in part or not part.isprintable() or len(part.encode()) > _NAME_BYTES:
            raise UnsafeArchiveError(f"{subject} is not a plain path")


class _ChunkFile(io.RawIOBase):
    """Pieces as a file: hashed and counted, refused beyond `limit` bytes."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        limit: int | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self._chunks = iter(chunks)
        self._limit = limit
        self._on_bytes = on_bytes
        self._rest = memoryview(b"")
        self.hash = hashlib.sha256()
        self.size = self.used = 0
        """Bytes read, and the end of those that are not zero."""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads at most a piece."""
        if not self._rest:
            self._rest = memoryview(self._next())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next(self) -> bytes:
        chunk = next(filter(None, self._chunks), b"")
        if used := len(chunk.rstrip(b"\0")):
            self.used = self.size + used
        self.size += len(chunk)
        if self._limit is not None and self.size > self._limit:
            raise UnsafeArchiveError(f"it unpacks to more than the expected {self._limit} bytes")
        self.hash.update(chunk)
        if self._on_bytes and chunk:
            self._on_bytes(len(chunk))
        return chunk


@dataclass(kw_only=True)
class FolderWriter:
    """A visitor that writes below `root`, an empty folder; `made`: path to SHA-256, or `-> target` of a link.

    Several archives may share it: a file that both have with the same bytes (a licence) is written once.
    """

    root: Path
    made: dict[str, str] = field(default_factory=dict)
    _folders: set[str] = field(default_factory=set)

    def __call__(self, entry: Entry) -> None:
        """Writes an entry; never opens or follows what exists."""
        name = str(entry.path)
        if entry.info.isdir():
            self._folder(entry.path)
            return
        self._folder(entry.path.parent)
        exists = name in self.made or name in self._folders
        if entry.content is None:
            content = f"-> {entry.info.linkname}"
            if not exists:
                (self.root / name).symlink_to(entry.info.linkname)
        elif exists:
            content = hashlib.file_digest(entry.content, "sha256").hexdigest()  # type: ignore[arg-type]
        else:
            content = self._file(self.root / name, entry)
        if self.made.setdefault(name, content) != content or name in self._folders:
            raise UnsafeArchiveError(f"{name!r} occurs twice, with other contents")

    def _file(self, path: Path, entry: Entry) -> str:
        assert entry.content is not None
        mode = 0o777 if entry.info.mode & 0o100 else 0o666  # less the umask
        digest = hashlib.sha256()
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(made, "wb") as file:
            while piece := entry.content.read(_CHUNK):
                digest.update(piece)
                file.write(piece)
        return digest.hexdigest()

    def _folder(self, path: PurePosixPath) -> None:
        if not path.parts or str(path) in self._folders:
            return
        if str(path) in self.made:
            raise UnsafeArchiveError(f"{str(path)!r} is not a folder in another entry")
        self._folder(path.parent)
        (self.root / path).mkdir()
        self._folders.add(str(path))
