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


def parse_json(data: bytes | str) -> Any:
    """Values of a JSON text. Raises ValueError for every text that is not valid, too deep or not UTF-8."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
