"""Files of the rootfs cache: paths, locks and atomic creation, and the package store.

The store has each file under the SHA-256 of its bytes: with a store, no mirror is needed. A file is verified when it enters, and
again whenever a rootfs is assembled from it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aotforge.base.files import errors_as, make_folders, new_file_in, open_lock, sync
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file


@dataclass(frozen=True, kw_only=True)
class CachePaths:
    """The folders below `<cache>/containers`; every name in them is a SHA-256."""

    cache: Path

    @property
    def base(self) -> Path:
        """Parent of all folders."""
        return self.cache.absolute() / "containers"

    @property
    def store(self) -> Store:
        """Packages and wheels, by the digest of the file."""
        return Store(self.base / "store")

    def tar(self, digest: str) -> Path:
        """A finished rootfs."""
        return self.base / "roots" / f"{digest}.tar"

    def record(self, digest: str) -> Path:
        """Size, mtime and inode of a finished rootfs when its digest was verified."""
        return self.base / "roots" / f"{digest}.json"

    def tree(self, digest: str) -> Path:
        """A rootfs as a folder."""
        return self.base / "trees" / digest

    @property
    def image_value(self) -> Path:
        """A random value that is part of every image for engines."""
        return self.base / "image-value"

    def lock(self, name: str) -> Path:
        """Lock file of what is being built."""
        return self.base / "locks" / name

    def archive(self, digest: str) -> Path:
        """A rootfs as an archive for `docker load`."""
        return self.base / "archives" / f"{digest}.tar"


def storage_errors(path: Path) -> AbstractContextManager[None]:
    """Turns the system's errors into ContainerError."""
    hint = "no incomplete file stays; free some space (./dev cache --prune 5) or choose another cache (AOTFORGE_CACHE)"
    return errors_as(ContainerError, path, hint=hint)


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds a lock that the kernel releases when this process exits; calls `on_wait` before it waits for another holder."""
    make_folders(path.parent)
    handle = open_lock(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create_once(
    lock: Path,
    exists: Callable[[], bool],
    create: Callable[[], object],
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Calls `create` unless `exists`; of several processes, one creates and the others wait."""
    if not exists():
        with file_lock(lock, on_wait):
            if not exists():
                create()


@contextmanager
def staged_file(path: Path, *, locked: bool = True) -> Iterator[Path]:
    """A new file that replaces `path` when the block succeeds, read-only. `locked`: this process holds a lock for `path`, so files
    that killed processes left are removed."""
    make_folders(path.parent)
    for left in path.parent.glob(f".{path.name}.staged-*") if locked else ():
        left.unlink()
    handle, staged = new_file_in(path.parent, prefix=f".{path.name}.staged-")
    os.close(handle)
    try:
        yield staged
        staged.chmod(staged.stat().st_mode & ~0o222)
        sync(staged)  # file systems may write the new name before the bytes
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


class Store:
    """A folder of files by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """Path of a file, stored or not."""
        return self.folder / sha256

    def has(self, sha256: str) -> bool:
        """The file is stored; `checked` verifies it."""
        return self.path(sha256).is_file()

    def checked(self, sha256: str) -> Path:
        """The verified file. Raises ContainerError and removes a damaged file, so that it is downloaded again."""
        path = self.path(sha256)
        found = sha256_file(path)
        if found != sha256:
            path.unlink(missing_ok=True)
            raise ContainerError(
                f"{path} was damaged: its SHA-256 is {found}",
                cause="a failing disk, or a program that wrote into the cache",
                hint="it has been removed; the same command downloads it again",
            )
        return path

    @contextmanager
    def entering(self, sha256: str) -> Iterator[BinaryIO]:
        """A file to write; it is stored when the block succeeds. Raises ContainerError for other bytes."""
        with staged_file(self.path(sha256), locked=False) as staged:
            with staged.open("wb") as file:
                yield file
            found = sha256_file(staged)
            if found != sha256:
                raise ContainerError(f"SHA-256 {found} instead of {sha256}")

    def put(self, sha256: str, source: BinaryIO) -> None:
        """Copies a stream into the store. Raises ContainerError for other bytes."""
        with self.entering(sha256) as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def put_file(self, sha256: str, path: Path) -> None:
        """Copies a file into the store. Raises ContainerError for other bytes."""
        with path.open("rb") as source:
            self.put(sha256, source)

    def export(self, digests: Iterable[str], folder: Path) -> int:
        """Copies files to another folder, verified, under the same names; returns their number. Raises ContainerError, OutputError, OSError."""
        other, wanted = Store(folder), sorted(set(digests))
        for sha256 in wanted:
            if not self.has(sha256):
                raise ContainerError(
                    f"{sha256} is not in the store", hint="build the rootfs first: ./dev containers.build"
                )
            if not other.has(sha256) or sha256_file(other.path(sha256)) != sha256:
                other.put_file(sha256, self.path(sha256))
        return len(wanted)
