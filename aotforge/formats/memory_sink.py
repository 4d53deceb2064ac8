"""Files of a checked archive in memory, and bounds that keep them in proportion to the archive."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath

from aotforge.formats.untrusted_file import check_holes, open_regular
from aotforge.formats.untrusted_tar import ArchiveBounds, ArchiveFacts

_MOST = 2 * 1024**3
_FREE = 16 * 1024**2
_RATIO = 40
"""Images are compressed already and assembly texts shrink by 10 to 24; deflate alone could reach 1,032."""


def archive_bounds(path: Path, *, free: int = _FREE) -> ArchiveBounds:
    """Bounds of a release archive: a small file cannot fill memory or disk. Raises OSError."""
    with open_regular(path) as file:
        check_holes(file)
        size = min(_MOST, free + _RATIO * os.fstat(file.fileno()).st_size)
    return ArchiveBounds(sha256="", size=size, members=100_000, free=free, ratio=_RATIO)


class ReleaseBounds:
    """Bounds of the archives of one release: the bytes that an archive has whatever its size are those of all together."""

    def __init__(self) -> None:
        self._free = self._taken = _FREE

    def archive(self, path: Path) -> ArchiveBounds:
        """Bounds of the next archive, which has taken all that was free unless `used` is called. Raises OSError."""
        bounds = archive_bounds(path, free=self._free)
        self._taken, self._free = self._free, 0
        return bounds

    def used(self, facts: ArchiveFacts) -> None:
        """The archive was read."""
        self._free = max(0, self._taken - max(0, facts.tar.size - _RATIO * facts.size))


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
