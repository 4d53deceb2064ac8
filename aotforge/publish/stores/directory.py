"""A folder as a store: link(2) creates an object atomically and never over another one."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath

from aotforge.base.files import make_folders, new_partial, sync, waiting_lock, write_atomic
from aotforge.errors import OutputError
from aotforge.publish.stores.reading import read_all
from aotforge.publish.stores.store import CHUNK, Content, DeniedError, ExistsError, MissingError, StoreError

_SWAP_LIMIT = 16 * 1024 * 1024
"""Bytes of an object that `compare_and_swap` replaces, at most."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_TEAM = "a folder of several publishers has mode 2775 and their group, and each publishes with umask 002"
_ERRORS = {
    **dict.fromkeys((errno.ENOENT, errno.EISDIR, errno.ENOTDIR), (MissingError, "check the address")),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), (StoreError, "make space there, then run it again")),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), (DeniedError, _TEAM)),
}
"""Error and next step."""


class DirectoryStore:
    """Objects are files below `folder`; hidden names are the store's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self._folder)

    @contextmanager
    def _object(self, name: str, *, make: bool = False) -> Iterator[Path]:
        """The path of an object; with `make`, its folder is made. Raises StoreError for the system's
        errors."""
        parts = PurePosixPath(name).parts
        if not parts or any(part == "/" or part.startswith(".") for part in parts):
            raise StoreError(f"{name!r} is not a valid object name")
        path = self._folder.joinpath(*parts)
        with _store_errors(path):
            if make:
                make_folders(path.parent)
            yield path

    def size(self, name: str) -> int | None:
        """Bytes of a file; None when there is none."""
        with self._object(name) as path:
            return path.stat().st_size if path.is_file() else None

    def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
        """A file's bytes from `start` on."""
        with self._object(name) as path, path.open("rb") as file:
            file.seek(start)
            while chunk := file.read(CHUNK):
                yield chunk

    def names(self, prefix: str) -> Mapping[str, int]:
        """Files below `prefix`. Names have two parts at most; links are followed."""
        inner = prefix.rpartition("/")[0]
        sizes = {}
        with _store_errors(self._folder / inner):
            for pattern in ("*",) if inner else ("*", "*/*"):
                for path in (self._folder / inner).glob(pattern):
                    name = path.relative_to(self._folder).as_posix()
                    if name.startswith(prefix) and "/." not in f"/{name}" and path.is_file():
                        sizes[name] = path.stat().st_size
        return dict(sorted(sizes.items()))

    def put_if_absent(self, name: str, content: Content) -> None:
        """Writes a partial file to the disk, then links it; or raises ExistsError."""
        with self._object(name, make=True) as path:
            handle, partial = new_partial(path)
            try:
                with os.fdopen(handle, "wb") as file:
                    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as source:
                        shutil.copyfileobj(source, file, CHUNK)
                    file.flush()
                    os.fsync(file.fileno())
                    # publishers read back from the disk, not from memory
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    try:
                        path.hardlink_to(partial)
                    except OSError as error:
                        if path.exists():
                            raise ExistsError(f"{path} exists") from None
                        if error.errno not in _NO_LINKS:
                            raise
                        partial.rename(path)  # no hard links here: another publisher may write in between
                sync(path.parent)
            finally:
                partial.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Deletes a file."""
        with self._object(name) as path:
            path.unlink(missing_ok=True)

    def load(self, name: str, *, limit: int) -> tuple[bytes, str] | None:
        """A small file; the token is its SHA-256."""
        if self.size(name) is None:
            return None
        data = read_all(self.read(name), f"{self.url}/{name}", limit=limit)
        return data, hashlib.sha256(data).hexdigest()

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        """Replaces a file under a lock that the kernel releases when its holder ends."""
        with self._object(name, make=True) as path, waiting_lock(path):
            there = self.load(name, limit=_SWAP_LIMIT)
            if (there[1] if there else None) != token:
                raise ExistsError(f"{path} was replaced by another publisher")
            write_atomic(path, data)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """The system's errors, also those that became an OutputError, as StoreError."""
    try:
        yield
    except (OSError, OutputError) as raised:
        error = raised.__cause__ if isinstance(raised, OutputError) else raised
        number = error.errno or 0 if isinstance(error, OSError) else 0
        kind, hint = _ERRORS.get(number, (StoreError, "check the folder and its file system"))
        named = (error.filename2 or error.filename or path) if isinstance(error, OSError) else path
        raise kind(f"{named}: {os.strerror(number)}", hint=hint) from error
