"""A folder as a store: link(2) creates an object atomically and never over another one."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from shlex import quote

from aotforge.base.files import (
    PART,
    lock_within,
    make_folders,
    new_partial,
    open_lock,
    open_regular,
    remove_unlocked,
    sync,
    write_atomic,
)
from aotforge.errors import OutputError
from aotforge.formats.api_level import RELEASE_NAME
from aotforge.formats.tar_reader import file_chunks
from aotforge.publish.index import FILE_NAME, FOLDER, OBJECTS
from aotforge.publish.stores.reading import collect
from aotforge.publish.stores.store import CHUNK, Content, ErrorKind, Guarantees, OnBytes, StoreError

_PARTIAL = re.compile(rf"\.{FILE_NAME[1:-1]}{re.escape(PART)}[a-z0-9_]{{8}}(\.link)?")  # mkstemp's form
_RELEASE = re.compile(RELEASE_NAME)
_LOCK = ".swap.lock"
_LOCK_SECONDS = 60.0
"""Who holds the lock reads and writes one small file."""

_SWAP_LIMIT = 16 * 1024 * 1024
"""Bytes of an object that is replaced, at most; `load` gives its token to publishers for no larger one."""

_DEPTH = 8
"""Parts of a listed name at most; the names of objects have two."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_TEAM = "a folder of several publishers has mode 2775 and their group, and each publishes with umask 002"
_FULL = (ErrorKind.FULL, "the disk is full", "make space there, then run the same command again")
_DENIED = (ErrorKind.DENIED, "this user may not do that there", _TEAM)
_REFUSED = (ErrorKind.REFUSED, "", "check the folder and its file system")
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

    @contextmanager
    def _object(self, name: str, *, make: bool = False) -> Iterator[Path]:
        """The path of an object; with `make`, its folder is made. Raises StoreError, in place of what the block raises too."""
        path = self._path(name)
        with _store_errors(path):
            if make:
                make_folders(path.parent)
            yield path

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        with _none_when_missing(), self._object(name) as path:
            status = path.stat()
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        return None

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """A file's bytes from `start` on."""
        with self._object(name) as path:
            yield from _chunks(path, start)

    def probe(self) -> Guarantees:
        """Tests link(2), which keeps objects from being overwritten. Removes partial files of killed publishers."""
        with self._object("probe", make=True) as path:
            self._remove_partial()
            handle, name = new_partial(path)
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
        return Guarantees(put=put, swap=True)

    def _remove_partial(self) -> None:
        """Removes partial files of killed publishers: by name and place only our own, whatever else the folder is for."""
        own = [
            path
            for path in self._folder.iterdir()
            if (path.name in {FOLDER, OBJECTS} or _RELEASE.fullmatch(path.name)) and not path.is_symlink()
        ]
        for place in (self._folder, *own):
            with suppress(OSError):  # it is a file, or gone
                for left in place.iterdir():
                    if _PARTIAL.fullmatch(left.name):
                        remove_unlocked(left)

    def names(self, prefix: str) -> Mapping[str, int]:
        """Files below `prefix`."""
        start = self._folder / prefix.rpartition("/")[0]
        found = {}
        with _store_errors(start):
            for inner, folders, files in os.walk(start, onerror=_refuse, followlinks=True):
                place = Path(inner).relative_to(self._folder)
                folders[:] = [one for one in folders if not one.startswith(".") and len(place.parts) < _DEPTH]
                for file in files:
                    name = (place / file).as_posix()
                    if name.startswith(prefix) and not file.startswith("."):
                        with suppress(FileNotFoundError):  # removed meanwhile
                            status = Path(inner, file).stat()
                            if stat.S_ISREG(status.st_mode):
                                found[name] = status.st_size
        return dict(sorted(found.items()))

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """Writes a partial file to the disk, then links it; EXISTS when the name is taken."""
        with self._object(name, make=True) as path:
            handle, partial = new_partial(path)
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
                    _link(Path(partial), path)
                sync(path.parent)
            finally:
                Path(partial).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Deletes a file."""
        with _none_when_missing(), self._object(name) as path:
            path.unlink()

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small file; the token is its SHA-256."""
        with _none_when_missing(), self._object(name) as path:
            data = collect(_chunks(path), str(path), limit=limit)
            return data, hashlib.sha256(data).hexdigest()
        return None

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces a file under a lock that the kernel releases when its holder ends; UNAVAILABLE when none of them does."""
        with (
            self._object(name, make=True) as path,
            os.fdopen(open_lock(path.parent / _LOCK)) as lock,
        ):
            if not lock_within(lock.fileno(), _LOCK_SECONDS):
                raise _locked(path.parent / _LOCK)
            if _token(path) != token:
                raise StoreError(ErrorKind.EXISTS, f"{path} was replaced by another publisher")
            write_atomic(path, data)


def _refuse(error: OSError) -> None:
    """Raises what keeps a folder from being listed, unless it is not there."""
    if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
        raise error


def _chunks(path: Path, start: int = 0) -> Iterator[bytes]:
    """An object's bytes from `start` on."""
    with open_regular(path, flags=0) as file:
        file.seek(start)
        while chunk := file.read(CHUNK):
            yield chunk


def _token(path: Path) -> str | None:
    """The SHA-256 of a small file; None when there is none. Raises StoreError, REFUSED for a larger one."""
    try:
        return hashlib.sha256(collect(_chunks(path), str(path), limit=_SWAP_LIMIT)).hexdigest()
    except FileNotFoundError:
        return None


def _locked(lock: Path) -> StoreError:
    return StoreError(
        ErrorKind.UNAVAILABLE,
        f"{lock} is locked by another process for more than {_LOCK_SECONDS:.0f} s",
        cause="another publisher is stopped",
        hint=f"fuser -v {quote(str(lock))} shows the process: end it, then run the same command again",
    )


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


@contextmanager
def _none_when_missing() -> Iterator[None]:
    """Ends the block for a file that is missing."""
    try:
        yield
    except StoreError as error:
        if error.kind is not ErrorKind.MISSING:
            raise


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """The system's errors, and those of `write_atomic`, as StoreError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise StoreError(ErrorKind.MISSING, f"{path} does not exist", hint="check the address") from error
    except NotADirectoryError as error:
        raise StoreError(ErrorKind.MISSING, f"{path} is not a folder", hint="check the address") from error
    except OutputError as error:
        full = "full" in error.cause or "quota" in error.cause
        kind = ErrorKind.FULL if full else ErrorKind.DENIED
        raise StoreError(kind, error.what, cause=error.cause) from error
    except OSError as error:
        kind, cause, hint = _ERRORS.get(error.errno or 0, _REFUSED)
        what = f"{error.filename or path}: {error.strerror or error}"
        raise StoreError(kind, what, cause=cause, hint=hint) from error
