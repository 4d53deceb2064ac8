"""Writer of deterministic zip files: bytes depend on members, given time and zlib.

Members are sorted, all of one time and mode; no folders, extra fields or comments. As deflate differs between zlib versions,
`digest_members` is the identity that is the same on every machine.
"""

import hashlib
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file, unlike

_FIRST, _LAST = 315532800, 4354819199
"""1980-01-01 and 2107-12-31: the range of the format's times."""

_MODE = 0o100644
_UNIX = 3
_LEVEL = 9


def write_zip(path: Path, members: Mapping[str, bytes], *, epoch: int) -> str:
    """Writes `path` and returns its SHA-256. `epoch` is every member's time in seconds since 1970, clamped to the format's range.

    Raises ReleaseError for names that cannot be extracted everywhere.
    """
    moment = time.gmtime(min(max(epoch, _FIRST), _LAST))[:6]
    for name in members:
        _check_name(name)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as file:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system, info.external_attr = _UNIX, _MODE << 16
            file.writestr(info, members[name], compresslevel=_LEVEL)
    path.chmod(0o644)
    return sha256_file(path)


def check_zip(path: Path, members: Mapping[str, bytes]) -> None:
    """Reads a zip file back and compares it with its intended members. Raises ReleaseError."""
    try:
        with zipfile.ZipFile(path) as file:
            found = {info.filename: file.read(info) for info in file.infolist()}
            entries = len(file.infolist())
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise unlike(path, str(error)) from error
    if found != dict(members) or entries != len(members):
        raise unlike(path, "its members differ from what was written")


def digest_members(members: Mapping[str, bytes]) -> str:
    """SHA-256 over a line `<SHA-256>  <name>` for each member, by name, as sha256sum prints them."""
    lines = (f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check_name(name: str) -> None:
    parts = name.split("/")
    plain = name.isascii() and name.isprintable() and not set(name) & set('\\:*?"<>|')
    if not plain or any(part in ("", ".", "..") or part.endswith((".", " ")) for part in parts):
        raise ReleaseError(
            f"{name!r} cannot be a member of a zip file", cause="Windows has no such file name"
        )
