"""SHA256SUMS and SHA256SUMS.uncompressed: sha256sum's format, one digest and file name a line."""

import re
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError
from aotforge.formats.untrusted_file import read_regular

SUMS = "SHA256SUMS"
TAR_SUMS = "SHA256SUMS.uncompressed"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\\]+)")


def parse_sums(text: str) -> dict[str, str]:
    """SHA-256 by file name. Raises ValueError for an invalid line, a repeated name, or a name outside of the folder."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if not match or match[2] in {*found, ".", ".."}:
            # without the line: the file may be a link to one that others must not read
            raise ValueError(f"line {number} is not a digest and the name of another file")
        found[match[2]] = match[1]
    return found


def read_sums(path: Path) -> dict[str, str]:
    """The list in a release folder. Raises ReleaseError."""
    try:
        return parse_sums(read_regular(path).decode("ascii"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not a list of SHA-256 sums ({error})"
        raise ReleaseError(
            f"{path}: {reason}",
            cause="the folder is not a release, or the list was altered",
            hint="name the folder that `./dev build` or `./dev release` printed, e.g. releases/dist/0.11.2b-r1",
        ) from error


def sums_bytes(sums: Mapping[str, str]) -> bytes:
    """The list as bytes, by file name."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode("ascii")
