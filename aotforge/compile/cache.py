"""The content-addressed cache: one file per job key, verified on every read, written by rename, shared by any number of builds.

Layout below the folder: `images-1/<first two digits>/<key>` entries, `images-1/locks` the lock file, `images-1/tmp/<session>/` what is
being written. Nothing is synced to disk on purpose: an entry torn by a power failure fails its digest and is compiled again, which costs less
than a sync per image.
"""

from __future__ import annotations

import errno
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from aotforge.compile.cache_entry import VERSION, Entry, EntryError, decode
from aotforge.compile.locks import LockFile
from aotforge.errors import CacheError
from aotforge.plan.model import JobKey

_HOUSEKEEPING = "housekeeping"
_HINTS = {
    errno.ENOSPC: "free space there, or choose another cache folder; finished images are kept",
    errno.EDQUOT: "free space there, or choose another cache folder; finished images are kept",
    errno.EROFS: "choose a cache folder that can be written",
    errno.EACCES: "choose a cache folder that can be written",
    errno.EPERM: "choose a cache folder that can be written",
}


class Cache:
    """A cache folder in use by one build. Nothing is created before something is to be written.

    Every method raises CacheError when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute() / f"images-{VERSION}"
        self._locks: LockFile | None = None
        self._session: Path | None = None

    @property
    def folder(self) -> Path:
        """The cache folder; other things than images lie in it too."""
        return self._folder.parent

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, key: JobKey) -> Entry | None:
        """The entry, or None when there is none. Raises EntryError when what is there is damaged."""
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._error(error) from error
        except OSError as error:
            if error.errno in {errno.EIO, errno.EISDIR}:  # a bad sector, or debris: as good as damaged
                raise EntryError(str(error)) from error
            raise self._error(error) from error
        return decode(data, key)

    def has(self, key: JobKey) -> bool:
        """Whether a file is there under that key, intact or not."""
        return self._path(key).exists()

    def store(self, key: JobKey, data: bytes) -> None:
        """Put an encoded entry in place, replacing a damaged one; readers see the old file or the new one, whole."""
        path = self._path(key)
        temporary = self.temporary() / f"entry-{key}"
        try:
            with temporary.open("wb") as file:
                file.write(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise self._error(error) from error

    def acquire(self, key: JobKey) -> bool:
        """Take the right to make an entry; False while another build has it."""
        locks = self._lock_file()
        try:
            return locks.acquire(key)
        except OSError as error:  # a file system without locks
            raise self._error(error) from error

    def release(self, key: JobKey) -> None:
        """Give the right back."""
        self._lock_file().release(key)

    def temporary(self) -> Path:
        """A folder of this build's own on the cache's file system; removed on close, or by a later build if this one is killed."""
        if self._session is None:
            locks = self._lock_file()
            session = self._folder / "tmp" / secrets.token_hex(8)
            try:
                locks.acquire(_HOUSEKEEPING, wait=True)
                self._sweep(locks)
                locks.acquire(session.name)
                session.mkdir(parents=True)
            except OSError as error:
                raise self._error(error) from error
            finally:
                locks.release(_HOUSEKEEPING)
            self._session = session
        return self._session

    def close(self) -> None:
        """Release every lock and remove what was being written."""
        if self._session is not None:
            shutil.rmtree(self._session, ignore_errors=True)
            self._session = None
        if self._locks is not None:
            self._locks.close()
            self._locks = None

    def _sweep(self, locks: LockFile) -> None:
        """Remove session folders whose builds are gone: a session's lock ends with its process."""
        folder = self._folder / "tmp"
        for session in folder.iterdir() if folder.is_dir() else ():
            if locks.acquire(session.name):
                shutil.rmtree(session, ignore_errors=True)
                locks.release(session.name)

    def _lock_file(self) -> LockFile:
        if self._locks is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._locks = LockFile(self._folder / "locks")
            except OSError as error:
                raise self._error(error) from error
        return self._locks

    def _path(self, key: JobKey) -> Path:
        return self._folder / key[:2] / key

    def _error(self, error: OSError) -> CacheError:
        return CacheError(
            f"cache folder {self._folder.parent}: {error.strerror or error}",
            hint=_HINTS.get(error.errno or 0, "check the folder, or choose another one"),
        )
