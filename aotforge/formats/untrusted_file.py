"""Bounded reads of files that others may have made: regular files only, JSON without surprises."""

import errno
import json
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

TEXT_LIMIT = 256 * 1024 * 1024
"""Bytes of the largest list or document of a release; release.json has about 2 kB per image."""

FOLDER_LIMIT = 64 * 2**30
"""Bytes of all files of a release: a hole of any size costs its author nothing, and a program that reads it hours."""

FILES_LIMIT = 1024
"""Files of a release; one with every arch has some 100."""

HOLES_LIMIT = 1 << 20
"""Bytes of a file in holes. What is compressed has no such run of zeros, and a hole costs its author nothing: limits in proportion to
bytes that were read would have no meaning."""

_PAGE = 4096
"""Bytes: no file system has smaller holes."""

UNPACKED_LIMIT, MEMBERS_LIMIT = 2 * 1024**3, 50_000
"""Bytes that an archive of a release unpacks to, and its members; texts for every arch are 22,000."""

VALUE_LIMIT = 1 << 23
"""Values of a document at most; release.json has some 70 per image."""


def open_regular(path: Path) -> FileIO:
    """A regular file, opened for reading; a named pipe or a device is refused and not waited for. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        error = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(
            error, "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file", str(path)
        )
    return FileIO(handle, "rb")


def check_holes(file: FileIO) -> int:
    """The bytes of a file in holes; some file systems have none, or do not state them. Raises OSError for more than HOLES_LIMIT."""
    handle, at, holes = file.fileno(), 0, 0
    size = os.fstat(handle).st_size
    try:
        while at < size and holes <= HOLES_LIMIT:
            start = os.lseek(handle, at, os.SEEK_HOLE)
            try:
                at = os.lseek(handle, start, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                at = size  # nothing else follows
            holes += max(0, at - start)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENXIO, errno.EOPNOTSUPP}:
            raise
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    if holes > HOLES_LIMIT:
        reason = "its file is sparse, as no compressed one is: copy it with cp --sparse=never"
        raise OSError(errno.EINVAL, reason, str(file.name))
    return holes


def check_folder_size(folder: Path, known: set[tuple[int, int]] | None = None) -> int:
    """Bytes that the author of the files in a folder gave: without holes, further names of a file, and folders below it.

    Files that are in `known` (device and inode) do not count, and those of this folder are added.
    Raises OSError when it is not the size of a release, which has at most FILES_LIMIT files and FOLDER_LIMIT bytes; for a file with holes;
    and for a link: what it leads to may have no end.
    """
    total = given = 0
    known = set() if known is None else known
    for number, path in enumerate(folder.iterdir(), 1):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, f"{path.name} is a link, and a release has none")
        total += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if total > FOLDER_LIMIT:
            raise OSError(
                errno.EFBIG, f"the files in this folder have at least {total} bytes, more than a release has"
            )
        if number > FILES_LIMIT:
            raise OSError(errno.EFBIG, f"this folder has more than {FILES_LIMIT} files, a release has fewer")
        identity = found.st_dev, found.st_ino
        if stat.S_ISREG(found.st_mode) and identity not in known:
            known.add(identity)
            given += found.st_size - _holes(path, found.st_size)
    return given


def _holes(path: Path, size: int) -> int:
    if size < _PAGE:
        return 0
    with open_regular(path) as file:
        try:
            return check_holes(file)
        except OSError as error:
            raise OSError(error.errno, f"{path.name}: {error.strerror}") from None


def read_regular(path: Path, *, limit: int = TEXT_LIMIT) -> bytes:
    """The bytes of a regular file. Raises OSError, also for more than `limit` bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= limit:
            data = bytearray()
            while piece := file.read(1 << 20):  # it may grow meanwhile
                data += piece
                if len(data) > limit:
                    break
            else:
                return bytes(data)
    raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))


def check_json(data: bytes | str, *, values: int | None = None) -> None:
    """Raises ValueError for a text of more than `values`, by default those that a release has: a byte of JSON can take 30 of memory."""
    text = data if isinstance(data, str) else data.decode("latin-1")  # a character for each byte
    count = sum(text.count(mark) for mark in ",[{")
    if count > (most := VALUE_LIMIT if values is None else values):
        raise ValueError(f"it has about {count} values, {most} are allowed")


def parse_json(data: bytes | str, *, keys: int | None = None, values: int | None = None) -> Any:
    """Values of a JSON text. Raises ValueError for every text that is not valid, too deep, of more than `values`, or not UTF-8, and for an
    object of more than `keys` keys."""

    def small(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > (keys or 0):
            raise ValueError(f"an object has {len(pairs)} keys, {keys} are allowed")
        return dict(pairs)

    check_json(data, values=values)
    try:
        return json.loads(data, object_pairs_hook=None if keys is None else small)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
