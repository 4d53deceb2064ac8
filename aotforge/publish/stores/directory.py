"""A folder as a store: link(2) makes an object whole or not at all and never over another one."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from aotforge.base.files import write_atomic
from aotforge.errors import OutputError
from aotforge.publish.stores.store import (
    Content,
    ErrorKind,
    Guarantees,
    OnBytes,
    StoreError,
    read_chunks,
)

_PART = ".part-"
_LOCK = ".swap.lock"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


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
            raise StoreError(ErrorKind.REFUSED, f"{name!r} is no name of an object")
        return self._folder.joinpath(*parts)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        path = self._path(name)
        with _faults(path), suppress(FileNotFoundError, NotADirectoryError):
            if path.is_file():
                return path.stat().st_size
        return None

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """A file's bytes from `start` on."""
        path = self._path(name)
        with _faults(path):
            yield from read_chunks(path, start)

    def probe(self) -> Guarantees:
        """What the file system can do: link(2) is what keeps an object from being put over another. Tidies up after the killed."""
        with _faults(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            _tidy(self._folder)
            handle, name = _new_part(self._folder / "probe")
            other = Path(f"{name}.link")
            try:
                other.hardlink_to(name)
                put = True
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
                    raise
                put = False
            finally:
                other.unlink(missing_ok=True)
                Path(name).unlink(missing_ok=True)
                os.close(handle)  # and with it the lock that keeps others from tidying it away
        return Guarantees(put=put, large=put, swap=True)

    def names(self, prefix: str) -> Mapping[str, int]:
        """Files below `prefix`."""
        start = self._folder / prefix.rpartition("/")[0]
        found = {}
        with _faults(start):
            for path in sorted(start.rglob("*")) if start.is_dir() else ():
                name = path.relative_to(self._folder).as_posix()
                hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
                if name.startswith(prefix) and not hidden and path.is_file():
                    found[name] = path.stat().st_size
        return found

    def put_if_absent(self, name: str, content: Content, *, on_bytes: OnBytes | None = None) -> None:
        """Copies beside the place, to the disk, then links; EXISTS when the name is taken."""
        path = self._path(name)
        with _faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = _new_part(path)
            try:
                with os.fdopen(handle, "wb") as file:
                    for chunk in [content] if isinstance(content, bytes) else read_chunks(content):
                        file.write(chunk)
                        if on_bytes:
                            on_bytes(len(chunk))
                    file.flush()
                    os.fsync(file.fileno())
                    # what is read back must come from the disk, not from memory
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    Path(partial).chmod(0o644)
                    _link(Path(partial), path)
                _sync_folder(path.parent)
            finally:
                Path(partial).unlink(missing_ok=True)

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small file; the token is its SHA-256."""
        path = self._path(name)
        with _faults(path):
            try:
                with path.open("rb") as file:
                    data = file.read(limit + 1)
            except (FileNotFoundError, NotADirectoryError):
                return None
        if len(data) > limit:
            raise StoreError(ErrorKind.REFUSED, f"{path} is larger than {limit} bytes")
        return data, _digest(data)

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces a file under a lock that its holder's death releases."""
        path = self._path(name)
        with _faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with (path.parent / _LOCK).open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                now = path.read_bytes() if path.exists() else None
                if (None if now is None else _digest(now)) != token:
                    raise StoreError(ErrorKind.EXISTS, f"{path} was replaced by another publisher")
                write_atomic(path, data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _link(partial: Path, path: Path) -> None:
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise StoreError(ErrorKind.EXISTS, f"{path} exists") from None
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
            raise
        if path.exists():  # no hard links here: `probe` has said that this leaves a gap
            raise StoreError(ErrorKind.EXISTS, f"{path} exists") from None
        partial.rename(path)


def _new_part(path: Path) -> tuple[int, str]:
    """A new file beside `path`, locked: that tells others that its writer lives."""
    while True:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}{_PART}", dir=path.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, partial
        os.close(handle)  # tidied away before it was locked


def _tidy(folder: Path) -> None:
    """Removes what killed publishers left."""
    for left in folder.rglob(f".*{_PART}*"):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise StoreError(ErrorKind.MISSING, f"{path} does not exist", hint="check the address") from error
    except OutputError as error:
        kind = ErrorKind.FULL if "full" in error.cause or "quota" in error.cause else ErrorKind.DENIED
        raise StoreError(kind, error.what, cause=error.cause) from error
    except OSError as error:
        number = error.errno or 0
        kind = (
            ErrorKind.FULL
            if number in _FULL
            else ErrorKind.DENIED
            if number in _DENIED
            else ErrorKind.REFUSED
        )
        cause = {ErrorKind.FULL: "the disk is full", ErrorKind.DENIED: "this user may not do that there"}.get(
            kind, ""
        )
        raise StoreError(
            kind, f"{error.filename or path}: {error.strerror or error}", cause=cause,
            hint="make room there, then run the same command again" if kind is ErrorKind.FULL else "check the folder and its owner",
        ) from error  # fmt: skip
