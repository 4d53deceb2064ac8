"""Members of a root filesystem and the normalised tar of them.

The tar is GNU format, sorted by path, owner 0:0, one time for all, no set-user-ID bits: a function of paths, modes and contents.
"""

import hashlib
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

from aotforge.formats.archive import Entry

_CHUNK = 1 << 20


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

    def reader(self, member: Member) -> BinaryIO:
        """A file at the start of a member's content."""
        self._file.seek(member.offset)
        return self._file


def file_mode(mode: int) -> int:
    """Readable for all users, executable or not, writable for the owner: a rootfs runs under any user ID and read-only."""
    return 0o755 if mode & stat.S_IXUSR else 0o644


_TYPES = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
}


def tar_entries(members: Mapping[str, Member], spool: Spool, *, epoch: int) -> Iterator[Entry]:
    """The members as entries of a tar in GNU format."""
    for path, member in _sorted(members):
        info = tarfile.TarInfo(path)
        info.type = _TYPES[member.kind]
        info.mode, info.mtime, info.linkname = member.mode, epoch, member.target
        info.size = member.size if member.kind == "file" else 0
        yield info, spool.reader(member) if member.kind == "file" else None


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
