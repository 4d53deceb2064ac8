"""Files of archives in memory, and bounds of what is made of a release, in proportion to its bytes."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path, PurePosixPath

from aotforge.errors import ReleaseError, listed
from aotforge.formats.untrusted_file import check_folder_size, check_holes, open_regular
from aotforge.formats.untrusted_tar import ArchiveBounds, ArchiveFacts

_MOST = 2 * 1024**3
_FREE = 16 * 1024**2
_RATIO = 40
"""Images are compressed already and assembly texts shrink by 10 to 24; deflate alone could reach 1,032."""

_MEMBERS = 50_000
"""Entries of archives, and folders that only their names imply. Complete texts for every arch are 22,000; a folder takes 4 kB of a disk."""

_FREE_MEMORY, _MEMORY_RATIO = 1024**3, 64
"""Of memory: a byte of JSON can take 30, one of a compressed text 40."""


@contextmanager
def limited_memory(*paths: Path) -> Iterator[None]:
    """The block reads releases of others, their archives, or folders of packs: this process, and those that it starts, get at most 1 GiB
    and 64 bytes for each byte that was given. Each reader has bounds for what it keeps, but there are many of them. Raises ReleaseError
    when that is not enough."""
    known: set[tuple[int, int]] = set()
    try:
        most = _FREE_MEMORY + _MEMORY_RATIO * sum(_given(path, known) for path in paths)
    except OSError:  # the reader in the block reports it
        most = _FREE_MEMORY
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _used_memory() + most
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    with suppress(ValueError):  # the hard limit is lower
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    except MemoryError as error:
        raise ReleaseError(
            f"{listed(list(map(str, paths)))} takes more than {most >> 20} MiB of memory",
            cause="releases take less in proportion to their bytes: its files were made for this, or were not made by the build",
            hint="fetch the release again from its publisher",
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _given(path: Path, known: set[tuple[int, int]]) -> int:
    """Bytes of a file, or of a folder and those in it. Raises OSError."""
    if not path.is_dir():
        return _size(path)
    folders = [one for one in path.iterdir() if one.is_dir()]
    return sum(check_folder_size(one, known) for one in (path, *folders))


def _size(path: Path) -> int:
    """Bytes of a file without its holes. Raises OSError."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size - check_holes(file)


def _used_memory() -> int:
    """Bytes that RLIMIT_DATA counts now; 0 where the system does not state them."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmData:")).split()[1]) * 1024
    return 0


def archive_bounds(path: Path, *, free: int = _FREE) -> ArchiveBounds:
    """Bounds of a release archive: a small file cannot fill memory or disk. Raises OSError."""
    most = min(_MOST, free + _RATIO * _size(path))
    return ArchiveBounds(sha256="", size=most, members=_MEMBERS, free=free, ratio=_RATIO)


class ReleaseBounds:
    """Bounds of the archives of one release: their members, and the bytes that an archive has whatever its size, are those of all
    together."""

    def __init__(self) -> None:
        self._free = self._taken = _FREE
        self._proportion = 0
        self._members = self._taken_members = _MEMBERS

    def archive(self, path: Path) -> ArchiveBounds:
        """Bounds of the next archive, which has taken all that was left unless `used` is called. Raises OSError."""
        bounds = replace(archive_bounds(path, free=self._free), members=self._members)
        self._proportion = bounds.size - self._free
        self._taken, self._free = self._free, 0
        self._taken_members, self._members = self._members, 0
        return bounds

    def used(self, facts: ArchiveFacts) -> None:
        """The archive was read."""
        self._members = max(0, self._taken_members - facts.tar.members)
        self._free = max(0, self._taken - max(0, facts.tar.size - self._proportion))


@dataclass(frozen=True, kw_only=True)
class MemorySink:
    """Keeps the contents of regular files below the folder `below` (ends in a slash, or empty), by name relative to it.

    `executable` has the names of those that are; `links` the target of every link.
    """

    below: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    executable: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)

    def folder(self, path: PurePosixPath) -> None:
        """Nothing."""

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        """Keeps a file."""
        name = str(path)
        if not name.startswith(self.below):
            for _ in pieces:
                pass
            return
        kept = name.removeprefix(self.below)
        content = BytesIO()  # a list of pieces would be joined to a second copy
        content.writelines(pieces)
        self.files[kept] = content.getvalue()
        if executable:
            self.executable.add(kept)

    def link(self, path: PurePosixPath, target: str) -> None:
        """Keeps a link's target."""
        self.links[str(path).removeprefix(self.below)] = target
