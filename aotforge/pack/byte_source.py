"""Where a pack's bytes come from: memory, or a file of which only the parts asked for are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from aotforge.errors import PackError
from aotforge.pack.binary import damaged


class Source(Protocol):
    """A file of a pack with random access. `read` raises PackError when the range is not in the file."""

    @property
    def name(self) -> str:
        """As errors name it."""

    @property
    def size(self) -> int:
        """Bytes."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`."""


class BytesSource:
    """A file held in memory."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.size = len(data)
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`."""
        if offset + size > self.size:
            raise damaged(self.name, f"ends before byte {offset + size}")
        return self._data[offset : offset + size]


class FileSource:
    """A file on disk, opened anew for each read, so that nothing needs closing. Raises PackError if it is
    no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        try:
            self.size = path.stat().st_size
            regular = path.is_file()
        except OSError as error:
            raise unreadable(path, error) from error
        if not regular:
            raise damaged(self.name, "is not a regular file")

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`; the file's size is compared before anything is allocated."""
        if offset + size > self.size:
            raise damaged(self.name, f"ends before byte {offset + size}")
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), size, offset)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if len(data) != size:
            raise damaged(self.name, f"ends before byte {offset + size}")
        return data


def unreadable(path: Path, error: OSError) -> PackError:
    """PackError for a file that is missing or that the system does not let us read."""
    return PackError(
        f"{path}: {error.strerror}",
        cause="the image pack is incomplete, or the path is not an image pack",
        hint="name a directory below lib/aotriton.images that has a __signature__",
    )
