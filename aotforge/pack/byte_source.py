"""Random access to the bytes of a pack's file, in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import PackError
from aotforge.pack.binary import damaged


@dataclass(frozen=True)
class Source:
    """A file of a pack: its name in errors, its size in bytes, and the function that reads `size` bytes from `offset`."""

    name: str
    size: int
    _read: Callable[[int, int], bytes]

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`. Raises PackError, before anything is allocated, if the file is shorter."""
        data = self._read(offset, size) if offset + size <= self.size else b""
        if len(data) != size:
            raise damaged(self.name, f"ends before byte {offset + size}")
        return data


def bytes_source(name: str, data: bytes) -> Source:
    """A file in memory."""
    return Source(name, len(data), lambda offset, size: data[offset : offset + size])


def file_source(path: Path) -> Source:
    """A file on disk, opened anew for each read, so that nothing needs closing. Raises PackError if it is not a regular file."""

    def read(offset: int, size: int) -> bytes:
        try:
            with path.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), size, offset)
        except OSError as error:
            raise unreadable(path, error) from error

    try:
        if not path.is_file() and path.exists():
            raise damaged(str(path), "is not a regular file")
        return Source(str(path), path.stat().st_size, read)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> PackError:
    """PackError for a file that is missing or that the system does not let us read."""
    return PackError(
        f"{path}: {error.strerror}",
        cause="the image pack is incomplete, or the path is not an image pack",
        hint="name a directory below lib/aotriton.images that has a __signature__",
    )
