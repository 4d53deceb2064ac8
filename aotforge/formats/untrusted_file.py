"""Bounded reads of files, and JSON without surprises."""

import errno
import json
from pathlib import Path
from typing import Any

TEXT_LIMIT = 256 * 1024 * 1024
"""Bytes of the largest list or document of a release; release.json has about 2 kB per image."""

UNPACKED_LIMIT, MEMBERS_LIMIT = 2 * 1024**3, 50_000
"""Bytes that an archive of a release unpacks to, and its members; texts for every arch are 22,000."""


def read_regular(path: Path, *, limit: int = TEXT_LIMIT) -> bytes:
    """The bytes of a file. Raises OSError, also for more than `limit` bytes."""
    if path.is_fifo():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return data


def parse_json(data: bytes | str) -> Any:
    """Values of a JSON text. Raises ValueError for every text that is not valid, too deep or not UTF-8."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
