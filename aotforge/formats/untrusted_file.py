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
