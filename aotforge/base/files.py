"""Atomic writes, output locks and the atomic replacement of folders.

Every failure of the system (read-only folder, disk full) becomes an OutputError that names the path.
"""

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

from aotforge.errors import AotforgeError, OutputBusyError, OutputError

PART = ".part-"
"""In the names of partial files, before the eight characters that `new_file_in` adds."""

_PARTIAL = re.compile(r"[a-z0-9_]{8}")
_TEMPORARY = re.compile(r"[a-z0-9_]{8}(-old)?")
"""Ends of the names of temporary files and folders."""
_FILE_MODE, _FOLDER_MODE = 0o666, 0o777
"""Less the umask, which the system subtracts."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write_atomic(path: Path, data: bytes) -> None:
    """Writes the complete file or nothing: readers see the old content or the new one. Raises OutputError.

    A killed writer leaves a partial file, which the next writer of that name removes.
    """
    with output_errors(path):
        make_folders(path.parent)
        with new_file(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[BufferedWriter]:
    """A file that takes the place of `path` when the block ends well: also of a link, which is not followed.

    Raises OSError; `path` then stays as it was.
    """
    handle, partial = new_partial(path)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            remove_partial(path)
            partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def new_partial(path: Path) -> tuple[int, Path]:
    """A new file next to `path`, and its name; its lock shows others that its writer is running. Raises
    OSError."""
    while True:
        handle, partial = new_file_in(path.parent, prefix=f".{path.name}{PART}")
        with suppress(OSError):  # without locks nothing is removed
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, partial
        os.close(handle)  # another writer removed it before it was locked


def remove_partial(path: Path) -> None:
    """Removes the partial files of `path` that killed writers have left."""
    prefix = f".{path.name}{PART}"
    with suppress(OSError):  # of a folder that cannot be read
        for left in path.parent.iterdir():
            if left.name.startswith(prefix) and _PARTIAL.fullmatch(left.name[len(prefix) :]):
                remove_unlocked(left)


def remove_unlocked(path: Path, *, folder: bool = False) -> None:
    """Removes a regular file, or a `folder`, that no running process has locked."""
    is_wanted = stat.S_ISDIR if folder else stat.S_ISREG
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if is_wanted(os.fstat(handle).st_mode):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if folder:
                    discard(path)
                else:
                    path.unlink()
        finally:
            os.close(handle)


def read_bytes(
    path: Path, error: type[AotforgeError], *, hint: str = "", limit: int = 512 * 1024 * 1024
) -> bytes:
    """A regular file's content, also through a link. Raises `error` with the reason when it cannot be read,
    or is larger than `limit`."""
    try:
        with open_regular(path, flags=0) as file:
            if len(data := file.read(limit + 1)) <= limit:
                return data
            raise OSError(errno.EFBIG, f"it is larger than {limit} bytes")
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}", hint=hint) from failure


def make_folders(path: Path) -> None:
    """Makes a folder and those above it. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)


def new_file_in(folder: Path, *, prefix: str, suffix: str = "") -> tuple[int, Path]:
    """The descriptor of a new file, and its path. As `tempfile.mkstemp`, with the mode of the umask. Raises
    OSError."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(4)}{suffix}"
        with suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return os.open(path, flags, _FILE_MODE), path


def new_folder_in(folder: Path, *, prefix: str) -> Path:
    """A new folder. As `tempfile.mkdtemp`, with the mode of the umask. Raises OSError."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(4)}"
        with suppress(FileExistsError):
            path.mkdir(_FOLDER_MODE)
            return path


def private_file_fault(path: Path) -> str:
    """The reason why a file, such as a key, is not private: its mode or its owner; empty when it is. Raises
    OSError."""
    status = path.stat()
    if status.st_mode & 0o077:
        return f"can be read by others than its owner: mode {stat.S_IMODE(status.st_mode):o}"
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    return ""


@contextmanager
def open_regular(path: Path, *, flags: int = os.O_NOFOLLOW) -> Iterator[BufferedReader]:
    """A regular file for reading; never waits for a pipe, and follows a link only with other `flags`. Raises
    OSError."""
    handle = os.open(path, os.O_RDONLY | flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with os.fdopen(handle, "rb") as file:
        yield file


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
            cause=_CAUSES.get(error.errno or 0, ""),
            hint="earlier results are untouched; free space or choose another folder, then build again",
        ) from error


@contextmanager
def errors_as(kind: type[AotforgeError], path: Path, *, hint: str) -> Iterator[None]:
    """Turns the system's errors, and OutputError, into another error with its own hint. `path` is what was
    being written."""
    try:
        with output_errors(path):
            yield
    except OutputError as error:
        raise kind(error.what, cause=error.cause, hint=hint) from error


_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.EACCES: "the folder is not writable for this user",
    errno.EPERM: "the folder is not writable for this user",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
}


def _lock_of(path: Path) -> Path:
    return path.parent / f".{path.name}.lock"


def open_lock(path: Path) -> int:
    """The descriptor of a file to be locked, made where there is none. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)


def _open_lock(path: Path) -> int:
    """The lock file of `path`. Raises OutputError."""
    with output_errors(_lock_of(path)):
        make_folders(path.parent)
        return open_lock(_lock_of(path))


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Holds the lock of `path` that `output_lock` takes; waits for another holder. Raises OutputError."""
    handle = _open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def output_lock(path: Path) -> Iterator[int]:
    """Holds the output at `path` for this process; a second holder at the same time gets OutputBusyError.

    Gives the descriptor that holds it: a program that inherits that one holds the output too, until it ends.
    Raises OutputError.

    The lock is a file next to the output (`.<name>.lock`) that stays; the kernel releases the lock when its
    holder exits, so a killed build leaves nothing to clean up.
    """
    handle = _open_lock(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputBusyError(
                f"another build is writing {path} now",
                cause=f"it holds the lock {_lock_of(path)}",
                hint="wait until it has finished, or choose another output folder",
            ) from error
        yield handle
    finally:
        os.close(handle)


@contextmanager
def staged_folder(path: Path, *, known: str = "*") -> Iterator[Path]:
    """A new folder that replaces `path` in one step when the block ends well; on any failure `path` stays
    as it was.

    A folder that has files, and none of the pattern `known`, is not replaced: it is not an earlier result.

    To be used while holding `output_lock(path)`: what earlier, killed runs left beside `path` is removed.
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
    prefix = f".{path.name}.staged-"
    with output_errors(path):
        make_folders(path.parent)
        for left in path.parent.iterdir():
            if left.name.startswith(prefix) and _TEMPORARY.fullmatch(left.name[len(prefix) :]):
                with suppress(OSError):
                    discard(left)
        staged = new_folder_in(path.parent, prefix=prefix)
    try:
        with output_errors(staged):
            yield staged
            _put_in_place(staged, path)
    finally:
        with suppress(OSError):
            discard(staged)


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder of this user alone in `parent`, which is removed when the block ends. Raises OutputError.

    Removes what killed processes have left: its lock shows others that a process is running.
    """
    with output_errors(parent):
        make_folders(parent)
        for left in parent.iterdir():
            if left.name.startswith(prefix) and _PARTIAL.fullmatch(left.name[len(prefix) :]):
                remove_unlocked(left, folder=True)
        handle, folder = _new_locked_folder(parent, prefix)
    try:
        yield folder
    finally:
        with suppress(OSError):
            discard(folder)
        os.close(handle)


def _new_locked_folder(parent: Path, prefix: str) -> tuple[int, Path]:
    """The descriptor that holds its lock, and its path. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with suppress(OSError):  # without locks nothing is removed
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.is_dir():
                return handle, folder
            os.close(handle)


def discard(path: Path) -> None:
    """Removes a folder, or what lay in its place: rmtree follows no link either, but waits for the writer of
    a pipe. Raises OSError."""
    if stat.S_ISDIR(path.lstat().st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


def _put_in_place(staged: Path, path: Path) -> None:
    """Moves `staged` to `path`; what was there goes to `staged`, in one step where the file system can do
    that.
    """
    if not path.exists() and not path.is_symlink():
        staged.rename(path)
    elif not exchange(staged, path):
        aside = Path(f"{staged}-old")
        path.rename(aside)
        try:
            staged.rename(path)
        except OSError:
            aside.rename(path)
            raise
        discard(aside)
    sync(path.parent)


def sync(path: Path) -> None:
    """Writes a file's content, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exchange(one: Path, other: Path) -> bool:
    """Swaps two paths atomically (Linux renameat2); False when kernel or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    result = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return int(result) == 0
