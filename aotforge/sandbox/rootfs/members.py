"""Members of a root filesystem and the normalised tar of them.

The tar is GNU format, sorted by path, owner 0:0, one time for all, no set-user-ID bits: a function of paths, modes and contents.
"""

from __future__ import annotations

import hashlib
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

_CHUNK = 1 << 20
_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file, folder or symbolic link. `mode` has permission bits only; `target` is a link's, or a hard link's path inside.

    A file's bytes are in the spool at `offset`, `size` bytes long, with SHA-256 `digest`.
    """

    kind: Literal["file", "folder", "link", "hard"]
    mode: int
    target: str = ""
    offset: int = 0
    size: int = 0
    digest: str = ""

    def line(self, path: str) -> str:
        """One line of a member list: kind, mode and content, a tab, path."""
        content = {
            "file": self.digest[:16],
            "folder": "-",
            "link": f"-> {self.target}",
            "hard": f"= {self.target}",
        }
        return f"{self.kind} {self.mode:04o} {content[self.kind]}\t{path}"


class Spool:
    """File contents on disk while a rootfs is assembled: half a gigabyte does not fit every machine's memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0

    def add(self, source: BinaryIO, mode: int) -> Member:
        """Stores the content of `source` as a file member."""
        digest, start = hashlib.sha256(), self._end
        self._file.seek(start)
        while piece := source.read(_CHUNK):
            digest.update(piece)
            self._file.write(piece)
            self._end += len(piece)
        return Member(
            kind="file", mode=file_mode(mode), offset=start, size=self._end - start, digest=digest.hexdigest()
        )

    def copy(self, member: Member, target: HashingFile) -> None:
        """Writes the content of a file member, padded to a block."""
        self._file.seek(member.offset)
        left = member.size
        while left:
            piece = self._file.read(min(left, _CHUNK))
            target.write(piece)
            left -= len(piece)
        target.write(bytes(-member.size % _BLOCK))


class HashingFile:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Appends `data`."""
        self.hash.update(data)
        self._file.write(data)
        self.size += len(data)


def file_mode(mode: int) -> int:
    """Readable for all users, executable or not, writable for the owner: a rootfs runs under any user ID and read-only."""
    return 0o755 if mode & stat.S_IXUSR else 0o644


def write_tar(members: Mapping[str, Member], spool: Spool, file: BinaryIO, *, epoch: int) -> tuple[str, int]:
    """Writes the tar; returns its SHA-256 (hex) and size in bytes."""
    out = HashingFile(file)
    for path, member in _sorted(members):
        out.write(_header(path, member, epoch))
        if member.kind == "file":
            spool.copy(member, out)
    out.write(bytes(2 * _BLOCK))
    out.write(bytes(-out.size % tarfile.RECORDSIZE))
    return out.hash.hexdigest(), out.size


_TYPES = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
}


def _header(path: str, member: Member, epoch: int) -> bytes:
    info = tarfile.TarInfo(path)
    info.type = _TYPES[member.kind]
    info.mode = member.mode
    info.mtime = epoch
    info.linkname = member.target
    info.size = member.size if member.kind == "file" else 0
    return info.tobuf(format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape")


def _sorted(members: Mapping[str, Member]) -> list[tuple[str, Member]]:
    return sorted(members.items(), key=lambda item: item[0].encode())


def member_list(members: Mapping[str, Member]) -> str:
    """One line per member, sorted as in the tar; it is committed next to the lock."""
    return "".join(f"{member.line(path)}\n" for path, member in _sorted(members))


def first_difference(locked: str, built: str) -> str:
    """Describes the first member that differs from the locked list; empty when the lists are equal."""
    before, after = _by_path(locked), _by_path(built)
    for path in sorted({*before, *after}, key=lambda name: name.encode()):
        if path not in after:
            return f"/{path} is locked and was not built"
        if path not in before:
            return f"/{path} was built and is not locked"
        if before[path] != after[path]:
            return f"/{path} is {after[path]!r}, locked as {before[path]!r}"
    return ""


def _by_path(text: str) -> dict[str, str]:
    """Path -> kind, mode and content of each line of a member list."""
    parts = (line.partition("\t") for line in text.splitlines())
    return {path: content for content, _, path in parts}
