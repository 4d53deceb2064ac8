"""A folder as a store: link(2) creates an object atomically and never over another one."""

import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from aotforge.base.files import make_folders, open_own, sync, write_atomic
from aotforge.errors import OutputError
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_tar import file_chunks
from aotforge.publish.index import FILE_NAME, FOLDER, OBJECTS, RELEASE_NAME
from aotforge.publish.stores.reading import collect
from aotforge.publish.stores.store import Content, ErrorKind, Guarantees, OnBytes, StoreError

_PART = ".part-"
_PARTIAL = re.compile(rf"\.{FILE_NAME[1:-1]}{re.escape(_PART)}[a-z0-9_]{{8}}(\.link)?")  # mkstemp's form
_RELEASE = re.compile(RELEASE_NAME)
_LOCK = ".swap.lock"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_FULL = (ErrorKind.FULL, "the disk is full", "make space there, then run the same command again")
_DENIED = (ErrorKind.DENIED, "this user may not do that there", "check the folder and its owner")
_REFUSED = (ErrorKind.REFUSED, "", "check the folder and its owner")
_ERRORS = dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FULL) | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), _DENIED
)


class DirectoryStore:
    """Objects are files below `folder`; hidden names are the store's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self._folder)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or any(part in {"..", "/", ""} or part.startswith(".") for part in parts):
            raise StoreError(ErrorKind.REFUSED, f"{name!r} is not a valid object name")
        return self._folder.joinpath(*parts)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        path = self._path(name)
        with _store_errors(path), suppress(FileNotFoundError, NotADirectoryError):
            if path.is_file():
                return path.stat().st_size
        return None

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """A file's bytes from `start` on."""
        path = self._path(name)
        with _store_errors(path):
            yield from file_chunks(path, start)

    def probe(self) -> Guarantees:
        """Tests link(2), which keeps objects from being overwritten. Removes partial files of killed publishers."""
        with _store_errors(self._folder):
            make_folders(self._folder)
            _remove_partial(self._folder)
            handle, name = _new_partial(self._folder / "probe")
            other = Path(f"{name}.link")
            try:
                other.hardlink_to(name)
                put = True
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                put = False
            finally:
                other.unlink(missing_ok=True)
                Path(name).unlink(missing_ok=True)
                os.close(handle)  # releases the lock that protects the file from removal by others
        return Guarantees(put=put, large=put, swap=True)

    def names(self, prefix: str) -> Mapping[str, int]:
        """Files below `prefix`."""
        start = self._folder / prefix.rpartition("/")[0]
        found = {}
        with _store_errors(start):
            for path in sorted(start.rglob("*")) if start.is_dir() else ():
                name = path.relative_to(self._folder).as_posix()
                hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
                if name.startswith(prefix) and not hidden and path.is_file():
                    found[name] = path.stat().st_size
        return found

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """Writes a partial file to the disk, then links it; EXISTS when the name is taken."""
        path = self._path(name)
        with _store_errors(path):
            make_folders(path.parent)
            handle, partial = _new_partial(path)
            try:
                with os.fdopen(handle, "wb") as file:
                    for chunk in [content] if isinstance(content, bytes) else file_chunks(content):
                        file.write(chunk)
                        if on_bytes:
                            on_bytes(len(chunk))
                    file.flush()
                    os.fsync(file.fileno())
                    # publishers read back from the disk, not from memory
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    os.fchmod(file.fileno(), 0o644)
                    _link(Path(partial), path)
                sync(path.parent)
            finally:
                Path(partial).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Deletes a file."""
        path = self._path(name)
        with _store_errors(path):
            path.unlink(missing_ok=True)

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small file; the token is its SHA-256."""
        path = self._path(name)
        with _store_errors(path):
            try:
                data = collect(file_chunks(path), str(path), limit=limit)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return data, hashlib.sha256(data).hexdigest()

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces a file under a lock that the kernel releases when its holder ends."""
        path = self._path(name)
        with _store_errors(path):
            make_folders(path.parent)
            with open(path.parent / _LOCK, "ab", opener=open_own) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if (sha256_file(path) if path.exists() else None) != token:
                    raise StoreError(ErrorKind.EXISTS, f"{path} was replaced by another publisher")
                write_atomic(path, data)


def _link(partial: Path, path: Path) -> None:
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise StoreError(ErrorKind.EXISTS, f"{path} exists") from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():  # no hard links here: `probe` has reported the remaining race
            raise StoreError(ErrorKind.EXISTS, f"{path} exists") from None
        partial.rename(path)


def _new_partial(path: Path) -> tuple[int, str]:
    """A new file next to `path`; its lock shows others that its writer is running."""
    while True:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}{_PART}", dir=path.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, partial
        os.close(handle)  # another publisher removed it before it was locked


def _remove_partial(folder: Path) -> None:
    """Removes partial files of killed publishers: by name, owner and place only our own, whatever else `folder` is for."""
    own = {FOLDER, OBJECTS}
    places = (path for path in folder.iterdir() if path.name in own or _RELEASE.fullmatch(path.name))
    for place in (folder, *places):
        if place.is_symlink() or not place.is_dir():
            continue
        for left in place.iterdir():
            if _PARTIAL.fullmatch(left.name):
                _remove_unlocked(left)


def _remove_unlocked(path: Path) -> None:
    """Removes a regular file of this user that no running publisher holds."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        finally:
            os.close(handle)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """The system's errors, and those of `write_atomic`, as StoreError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise StoreError(ErrorKind.MISSING, f"{path} does not exist", hint="check the address") from error
    except OutputError as error:
        full = "full" in error.cause or "quota" in error.cause
        kind = ErrorKind.FULL if full else ErrorKind.DENIED
        raise StoreError(kind, error.what, cause=error.cause) from error
    except OSError as error:
        kind, cause, hint = _ERRORS.get(error.errno or 0, _REFUSED)
        what = f"{error.filename or path}: {error.strerror or error}"
        raise StoreError(kind, what, cause=cause, hint=hint) from error
