"""Deterministic tarballs: the bytes depend on the members' names, contents and kinds, and on nothing else.

Members are sorted, times fixed, owners root without names, modes normalised; gzip has no name and no time.
As deflate differs between zlib versions, a tarball's identity is the SHA-256 of the uncompressed tar.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from aotforge.errors import ReleaseError

GZIP_LEVEL = 9
_CHUNK = 1024 * 1024
# magic, deflate, no flags, no time, slowest compression, made on an unknown system (RFC 1952)
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


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


@dataclass(frozen=True, kw_only=True)
class Digests:
    """Of one tarball: SHA-256 of the uncompressed tar (its identity) and of the file, and the file's size
    in bytes.
    """

    tar: str
    file: str
    size: int


def write_tar_gz(path: Path, members: Members, *, epoch: int) -> Digests:
    """Writes `<path>` (.tar.gz). `epoch` is every member's time, seconds since 1970.

    Folders are added for every member. Raises ReleaseError for names that a tarball of format USTAR cannot
    hold.
    """
    with path.open("wb") as file, _gzip(file) as sink:
        # "w|" writes forward only: a tarball never has to fit into memory
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
            for info, content in _entries(members, epoch):
                try:
                    tar.addfile(info, io.BytesIO(content))
                except ValueError as error:
                    raise ReleaseError(f"{info.name!r} cannot be a member of {path.name}: {error}") from error
        digest = sink.digest.hexdigest()
    path.chmod(0o644)
    return Digests(tar=digest, file=sha256_file(path), size=path.stat().st_size)


def check_tar_gz(path: Path, members: Members, digests: Digests) -> None:
    """Reads a tarball back and compares it with what was meant to be in it. Raises ReleaseError."""
    try:
        tar_digest = hashlib.sha256()
        with gzip.open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                tar_digest.update(chunk)
        if (tar_digest.hexdigest(), sha256_file(path)) != (digests.tar, digests.file):
            raise _unlike(path, "its SHA-256 changed after it was written")
        with tarfile.open(path, "r:gz") as tar:
            found = {_checked(tar, info, members, path) for info in tar}
    except (gzip.BadGzipFile, zlib.error, tarfile.TarError, EOFError) as error:
        raise _unlike(path, str(error)) from error
    missing = set(members) - found
    if missing:
        raise _unlike(path, f"{min(missing)} is missing")


def _checked(tar: tarfile.TarFile, info: tarfile.TarInfo, members: Members, path: Path) -> str:
    """The entry's name, once it is found to be what `members` has under it, or a folder."""
    meant = members.get(info.name)
    if isinstance(meant, Member):
        stream = tar.extractfile(info) if info.isreg() else None
        same = stream is not None and stream.read() == meant.content
    elif isinstance(meant, Link):
        same = info.issym() and info.linkname == meant.target
    else:
        same = info.isdir()
    if not same:
        raise _unlike(path, f"{info.name} is not what was put in")
    return info.name


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entries(members: Members, epoch: int) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    folders = {str(parent) for name in members for parent in PurePosixPath(name).parents} - {"."}
    # by components, so that a folder comes right before what it holds
    for name in sorted({*members, *folders}, key=lambda name: name.split("/")):
        info = tarfile.TarInfo(name)
        info.mtime = epoch
        member = members.get(name)
        content = b""
        if isinstance(member, Member):
            content = member.content
            info.size = len(content)
            info.mode = 0o755 if member.executable else 0o644
        elif isinstance(member, Link):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.target, 0o777
        else:
            info.type, info.mode = tarfile.DIRTYPE, 0o755
        yield info, content


class _Gzip(io.RawIOBase):
    """Compresses what is written to it into `file` and hashes it on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._checksum = 0
        self._size = 0
        file.write(_GZIP_HEADER)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.digest.update(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self._size += len(data)
        self._file.write(self._deflate.compress(data))
        return len(data)

    def finish(self) -> None:
        self._file.write(self._deflate.flush())
        self._file.write(
            self._checksum.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        )


@contextmanager
def _gzip(file: BinaryIO) -> Iterator[_Gzip]:
    sink = _Gzip(file)
    yield sink
    sink.finish()


def _unlike(path: Path, reason: str) -> ReleaseError:
    return ReleaseError(
        f"{path.name}: {reason}",
        cause="the disk or the memory of this machine is faulty, or another program changed the file",
        hint="run the build again; nothing was put in place",
    )
