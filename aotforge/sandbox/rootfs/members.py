"""Members of a root filesystem and the one tar that they make.

The tar is GNU format, sorted by path, owner 0:0, one time for all, no set-user-ID bits: a function of paths, modes and contents.
"""

from __future__ import annotations

import hashlib
import stat
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

_CHUNK = 1 << 20
_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file, folder or symbolic link. `mode` has permission bits only; `target` is a link's, or a hard link's path inside.

    A file's bytes lie in the spool at `offset`, `size` bytes long, with SHA-256 `digest`.
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
    """File contents on disk while a root is put together: half a gigabyte does not fit every machine's memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0

    def add(self, source: BinaryIO, mode: int) -> Member:
        """The content of `source` as a file member."""
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
        """The content of a file member, padded to a whole block."""
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
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append."""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        """SHA-256 of what was written, hex."""
        return self._hash.hexdigest()


def file_mode(mode: int) -> int:
    """Readable by everyone, executable or not, writable by the owner: a root runs under any user ID and read-only."""
    return 0o755 if mode & stat.S_IXUSR else 0o644


def write_tar(members: Mapping[str, Member], spool: Spool, file: BinaryIO, *, epoch: int) -> tuple[str, int]:
    """Writes the tar; its SHA-256 (hex) and size in bytes."""
    out = HashingFile(file)
    for path in sorted(members, key=lambda name: name.encode()):
        member = members[path]
        out.write(_header(path, member, epoch))
        if member.kind == "file":
            spool.copy(member, out)
    out.write(bytes(2 * _BLOCK))
    out.write(bytes(-out.size % tarfile.RECORDSIZE))
    return out.digest, out.size


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


def member_list(members: Mapping[str, Member]) -> str:
    """One line per member, sorted as in the tar: what is committed beside a lock."""
    paths = sorted(members, key=lambda name: name.encode())
    return "".join(f"{members[path].line(path)}\n" for path in paths)


def first_difference(locked: str, built: str) -> str:
    """The first member that is not as locked, in words; empty when the lists are equal."""
    before, after = _by_path(locked.splitlines()), _by_path(built.splitlines())
    for path in sorted({*before, *after}, key=lambda name: name.encode()):
        if before.get(path) != after.get(path):
            if path not in after:
                return f"/{path} is locked and was not built"
            if path not in before:
                return f"/{path} was built and is not locked"
            return f"/{path} is {after[path]!r}, locked as {before[path]!r}"
    return ""


def _by_path(lines: Iterable[str]) -> dict[str, str]:
    """Path -> kind, mode and content of each line of a member list."""
    parts = (line.partition("\t") for line in lines)
    return {path: content for content, _, path in parts}


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()
