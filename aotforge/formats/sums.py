"""SHA256SUMS and SHA256SUMS.uncompressed: sha256sum's format, one digest and file name a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError


def parse_sums(text: str) -> dict[str, str]:
    """File name to SHA-256. Raises ValueError for what is no such list, or names a file outside of its folder."""
    found = {name: digest for digest, name in (line.split("  ", 1) for line in text.splitlines())}
    if outside := [name for name in found if "/" in name or name in {"", ".", ".."}]:
        raise ValueError(f"names {outside[0]!r}, a file outside of its folder")
    return found


def read_sums(path: Path) -> dict[str, str]:
    """The list in a release folder. Raises ReleaseError."""
    try:
        return parse_sums(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"is not a list of SHA-256 sums ({error})"
        raise ReleaseError(
            f"{path}: {reason}",
            cause="the folder is no release, or the list was altered",
            hint="name the folder that `./dev build` or `./dev release` printed, e.g. releases/dist/0.11.2b-r1",
        ) from error


def sums_bytes(sums: Mapping[str, str]) -> bytes:
    """The list as bytes, by file name."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode("ascii")
