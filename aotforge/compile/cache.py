"""Compiled images in the content-addressed cache, shared by concurrent builds: one file per job key.

Layout below the folder: `images-1/<first two digits>/<key>` entries, `images-1/locks` the lock file,
`images-1/tmp/<session>/` files being written. Nothing is synced to disk on purpose: an entry torn by a power
failure fails its digest and is compiled again, which costs less than a sync per image.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aotforge.base.files import make_folders, open_lock
from aotforge.base.object_cache import NOT_SHARED, ObjectCache, SharedObjects
from aotforge.compile.cache_entry import KIND, Entry, decode
from aotforge.errors import CacheError
from aotforge.plan.model import JobKey

_HOUSEKEEPING = "housekeeping"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class LockFile:
    """Advisory locks on names in one file, one byte each; held until released or until the file is closed.

    Open-file-description locks (fcntl(2), F_OFD_SETLK) end with the descriptor: a build that is killed leaves
    none behind, there are no lock files to clean up, and two caches in one process exclude each other as two
    processes do.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = open_lock(path)

    def acquire(self, name: str, *, wait: bool = False) -> bool:
        """Take the lock. Without `wait`, False while another cache holds it."""
        try:
            self._set(fcntl.F_WRLCK, name, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, name: str) -> None:
        """Release the lock."""
        self._set(fcntl.F_UNLCK, name, fcntl.F_OFD_SETLK)

    def close(self) -> None:
        """Release all locks."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _set(self, kind: int, name: str, command: int) -> None:
        # two names on one byte would only wait for each other
        offset = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
        fcntl.fcntl(self._descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))


class Cache:
    """A cache folder in use by one build, and the `shared` places behind it. Nothing is created before the
    first write.

    Every method raises CacheError when the folder cannot be used.
    """

    def __init__(self, folder: Path, shared: SharedObjects = NOT_SHARED) -> None:
        self._folder = folder.absolute() / KIND
        self._objects = ObjectCache(
            cache=folder.absolute(), kind=KIND, parse=decode, write=self._write, shared=shared
        )
        self._locks: LockFile | None = None
        self._session: Path | None = None

    @property
    def folder(self) -> Path:
        """The cache folder; it holds other things than images, too."""
        return self._folder.parent

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def expect(self, keys: Iterable[JobKey]) -> None:
        """These entries will be loaded: shared places may send those that are not here."""
        self._objects.expect(keys)

    def has(self, key: JobKey) -> bool:
        """Whether the folder itself has an entry, which may be damaged."""
        return self._objects.path(key).is_file()

    def load(self, key: JobKey) -> Entry | None:
        """The entry, or None when there is none. Raises DamagedObjectError when it is damaged."""
        with self._errors():
            return self._objects.load(key)

    def store(self, key: JobKey, data: bytes) -> None:
        """Store an encoded entry, replacing a damaged one; readers see the old file or the new one."""
        with self._errors():
            self._objects.store(key, data)

    def _write(self, path: Path, data: bytes) -> None:
        temporary = self.temporary() / f"entry-{path.name}"
        try:
            temporary.write_bytes(data)
            make_folders(path.parent)
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def acquire(self, key: JobKey) -> bool:
        """Lock an entry; False while another build holds the lock."""
        with self._errors():  # a file system may have no locks
            return self._lock_file().acquire(key)

    def release(self, key: JobKey) -> None:
        """Unlock an entry."""
        self._lock_file().release(key)

    def temporary(self) -> Path:
        """A private folder on the cache's file system, removed on close or by a later build."""
        if self._session is None:
            locks = self._lock_file()
            session = self._folder / "tmp" / secrets.token_hex(8)
            with self._errors():
                try:
                    locks.acquire(_HOUSEKEEPING, wait=True)
                    self._sweep(locks)
                    locks.acquire(session.name)
                    make_folders(session)
                finally:
                    locks.release(_HOUSEKEEPING)
            self._session = session
        return self._session

    def close(self) -> None:
        """Release every lock and remove files being written."""
        if self._session is not None:
            shutil.rmtree(self._session, ignore_errors=True)
            self._session = None
        if self._locks is not None:
            self._locks.close()
            self._locks = None

    def _sweep(self, locks: LockFile) -> None:
        """Remove session folders of builds that have ended: a session's lock ends with its process."""
        folder = self._folder / "tmp"
        for session in folder.iterdir() if folder.is_dir() else ():
            if locks.acquire(session.name):
                shutil.rmtree(session, ignore_errors=True)
                locks.release(session.name)

    def _lock_file(self) -> LockFile:
        if self._locks is None:
            with self._errors():
                make_folders(self._folder)
                self._locks = LockFile(self._folder / "locks")
        return self._locks

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """OSErrors of the cache folder as CacheErrors."""
        try:
            yield
        except OSError as error:
            raise CacheError(
                f"cache folder {self._folder.parent}: {error.strerror or error}",
                hint="free space there, or choose another cache folder; finished images are kept",
            ) from error
