"""Atomic writes, output locks and the atomic replacement of folders.

Every failure of the system (read-only folder, disk full) becomes an OutputError that names the path.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from aotforge.errors import AotforgeError, OutputBusyError, OutputError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write_atomic(path: Path, data: bytes) -> None:
    """Writes the complete file or nothing: readers see the old content or the new one. Raises OutputError."""
    with output_errors(path):
        make_folders(path.parent)
        with new_file(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[BufferedWriter]:
    """A file that takes the place of `path`, also of a link, when the block ends well. Raises OSError."""
    handle, partial = new_partial(path)
    with os.fdopen(handle, "wb") as file:  # closed last: this releases the lock
        try:
            yield file
            file.flush()
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def new_partial(path: Path) -> tuple[int, Path]:
    """The locked, empty file `.<name>.part`, for which writers of this name wait. Raises OSError."""
    partial = path.with_name(f".{path.name}.part")
    while True:
        handle = open_lock(partial)
        fcntl.flock(handle, fcntl.LOCK_EX)
        own = os.fstat(handle)
        with suppress(FileNotFoundError):
            if os.path.samestat(own, partial.lstat()):
                if own.st_nlink == 1:
                    os.ftruncate(handle, 0)
                    return handle, partial
                partial.unlink()  # its writer was killed after it had linked the file to `path`
        os.close(handle)


def remove_unlocked(path: Path) -> None:
    """Removes a folder that no running process has locked."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        finally:
            os.close(handle)


def read_bytes(path: Path, error: type[AotforgeError], *, hint: str = "") -> bytes:
    """A file's content. Raises `error` with the reason when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}", hint=hint) from failure


def make_folders(path: Path) -> None:
    """Makes a folder and those above it. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)


def private_file_fault(path: Path) -> str:
    """Why a file, such as a key, is not private: its mode or owner; empty when it is. Raises OSError."""
    status = path.stat()
    if status.st_mode & 0o077:
        return f"can be read by others than its owner: mode {stat.S_IMODE(status.st_mode):o}"
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    return ""


def link_or_copy(path: str | Path, place: str | Path) -> None:
    """The file under another name, sharing its bytes where the file system can, else a copy with its mode."""
    try:
        os.link(path, place)
    except OSError:
        shutil.copy2(path, place)


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turns the system's errors into OutputError. `path` is what was being written."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {error.filename2 or error.filename or path}: {error.strerror or error}",
            cause=CAUSES.get(error.errno or 0, ""),
            hint="earlier results are untouched; free space or choose another folder, then build again",
        ) from error


@contextmanager
def errors_as(kind: type[AotforgeError], path: Path, *, hint: str) -> Iterator[None]:
    """As `output_errors`, with another error and hint; OutputError becomes it, too."""
    try:
        with output_errors(path):
            yield
    except OutputError as error:
        raise kind(error.what, cause=error.cause, hint=hint) from error


CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENAMETOOLONG: "a path on the command line or in the environment is too long",
    errno.EACCES: "the folder is not writable for this user",
    errno.EPERM: "the folder is not writable for this user",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
}


def open_lock(path: Path) -> int:
    """The descriptor of a file to be locked, made where there is none. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


@contextmanager
def waiting_lock(path: Path, flags: int = fcntl.LOCK_EX) -> Iterator[int]:
    """Holds the lock of `path`, a file beside it that stays; waits for another holder. Raises OutputError.

    The kernel releases it when its holder, and each program that inherits the descriptor, has ended.
    """
    lock = path.parent / f".{path.name}.lock"
    with output_errors(lock):
        make_folders(path.parent)
        handle = open_lock(lock)
    try:
        try:
            fcntl.flock(handle, flags)
        except BlockingIOError as error:
            raise OutputBusyError(
                f"another build is writing {path} now",
                cause=f"it holds the lock {lock}",
                hint="wait until it has finished, or choose another output folder",
            ) from error
        yield handle
    finally:
        os.close(handle)


def output_lock(path: Path) -> AbstractContextManager[int]:
    """As `waiting_lock`; a second holder at the same time gets OutputBusyError instead of waiting."""
    return waiting_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def staged_folder(path: Path, *, known: str = "*") -> Iterator[Path]:
    """A new folder that replaces `path` in one step when the block ends well; to be used with `output_lock`.

    A folder that has files, and none of the pattern `known`, is not replaced: it is not an earlier result.
    Raises OutputError, also where `path` is neither a folder nor a link.
    """
    if os.path.lexists(path) and not (path.is_dir() or path.is_symlink()):
        raise OutputError(
            f"{path} is not a folder",
            hint="move it away, or choose another output folder; nothing was written",
        )
    if path.is_dir() and not any(path.glob(known)) and any(path.iterdir()):
        raise OutputError(
            f"{path} has other files than a result of this command",
            cause="it would be replaced, and they would be lost",
            hint="choose an empty or a new folder; nothing was written",
        )
    staged = path.with_name(f".{path.name}.staged")
    with output_errors(path):
        _discard(staged)  # of a killed run
        staged.mkdir(parents=True)
    try:
        with output_errors(staged):
            yield staged
            _put_in_place(staged, path)
    finally:
        with suppress(OSError):
            _discard(staged)


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new, locked folder of this user alone in `parent`, removed at the end. Raises OutputError."""
    with output_errors(parent):
        make_folders(parent)
        for left in parent.glob(f"{prefix}{'?' * 8}"):
            remove_unlocked(left)
        handle, folder = _new_locked_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _new_locked_folder(parent: Path, prefix: str) -> tuple[int, Path]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.is_dir():
                return handle, folder
            os.close(handle)


def _discard(path: Path) -> None:
    """Removes a folder, or the link or file in its place, if it is there. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put_in_place(staged: Path, path: Path) -> None:
    """Moves `staged` to `path`; what was there goes to `staged`, in one step if the system can."""
    if not os.path.lexists(path):
        staged.rename(path)
    elif not swap(staged, path):
        aside = Path(f"{staged}-old")
        _discard(aside)
        path.rename(aside)
        try:
            staged.rename(path)
        except OSError:
            aside.rename(path)
            raise
        _discard(aside)
    sync(path.parent)


def sync(path: Path) -> None:
    """Writes a file's content, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def swap(path: Path, other: Path) -> bool:
    """Swaps two paths atomically (Linux renameat2); False when kernel or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    result = renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return int(result) == 0
