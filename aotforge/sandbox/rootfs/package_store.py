"""Packages and wheels in the cache, each under the SHA-256 of its bytes: with a store, no mirror is needed.

A file enters whole (checked while it is written, then renamed) and is checked again whenever a root is assembled from it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.members import file_digest

_CHUNK = 1 << 20


class Store:
    """The folder of files by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Where the file is, or would be."""
        return self.folder / sha256

    def has(self, sha256: str) -> bool:
        """Whether the file is there; whether it is whole, `checked` says."""
        return self.path(sha256).is_file()

    def checked(self, sha256: str) -> Path:
        """The file, read whole and compared with its name. Raises ContainerError; a damaged file is removed, so it is fetched anew."""
        path = self.path(sha256)
        found = file_digest(path)
        if found != sha256:
            path.unlink(missing_ok=True)
            raise ContainerError(
                f"{path} was damaged: its SHA-256 is {found}",
                cause="the disk, or something that wrote into the cache",
                hint="it has been removed; the same command fetches it anew",
            )
        return path

    @contextmanager
    def entering(self, sha256: str) -> Iterator[BinaryIO]:
        """A file to write; it enters the store when the block ends well and its bytes are the right ones. Raises ContainerError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".entering-", dir=self.folder)
        staged = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            found = file_digest(staged)
            if found != sha256:
                raise ContainerError(f"SHA-256 {found} instead of {sha256}")
            staged.chmod(0o444)
            staged.replace(self.path(sha256))
        finally:
            staged.unlink(missing_ok=True)

    def put(self, sha256: str, source: BinaryIO) -> None:
        """Copy a stream into the store. Raises ContainerError when its bytes are others."""
        with self.entering(sha256) as file:
            shutil.copyfileobj(source, file, _CHUNK)

    def export(self, digests: Iterable[str], folder: Path) -> int:
        """Copy files to another folder, checked, under the same names; how many. Raises ContainerError, OSError."""
        other = Store(folder)
        count = 0
        for sha256 in sorted(set(digests)):
            if not self.has(sha256):
                raise ContainerError(
                    f"{sha256} is not in the store", hint="build the root first: invoke containers.build"
                )
            if not other.has(sha256) or file_digest(other.path(sha256)) != sha256:
                with self.path(sha256).open("rb") as source:
                    other.put(sha256, source)
            count += 1
        return count
