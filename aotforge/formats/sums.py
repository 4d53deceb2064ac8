"""SHA256SUMS and SHA256SUMS.uncompressed: sha256sum's format, one digest and file name a line."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError
from aotforge.formats.untrusted_file import read_regular

SUMS = "SHA256SUMS"
TAR_SUMS = "SHA256SUMS.uncompressed"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\\]+)")


def parse_sums(text: str) -> dict[str, str]:
    """SHA-256 by file name. Raises ValueError for an invalid line or name, and a repeated one."""
    sums: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if not match or match[2] in {*sums, ".", ".."}:
            # without the line: the file may be a link to one that others must not read
            raise ValueError(f"line {number} is not a digest and the name of another file")
        sums[match[2]] = match[1]
    return sums


def read_sums(path: Path) -> dict[str, str]:
    """The list in a release folder. Raises ReleaseError."""
    return read_sums_file(path)[0]


def read_sums_file(path: Path) -> tuple[dict[str, str], str]:
    """The list in a release folder, and the SHA-256 of the same bytes. Raises ReleaseError."""
    try:
        data = read_regular(path)
        return parse_sums(data.decode("ascii")), hashlib.sha256(data).hexdigest()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not a list of SHA-256 sums ({error})"
        raise ReleaseError(
            f"{path}: {reason}",
            cause="the folder is not a release, or the list was altered",
            hint="name the folder that `./dev build` or `./dev release` printed",
        ) from error


def sums_bytes(sums: Mapping[str, str]) -> bytes:
    """The list as bytes, by file name."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode("ascii")
