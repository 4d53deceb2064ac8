"""Deterministic zip files and a bounded reader; `digest_members` is the same for every zlib."""

import hashlib
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aotforge.base.files import new_file
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_file import MEMBERS_LIMIT, UNPACKED_LIMIT

_FIRST, _LAST = 315532800, 4354819199
"""1980-01-01 and 2107-12-31: the range of the format's times."""

_MODE = 0o100644
_UNIX = 3
_LEVEL = 9
_BOUNDED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Methods that can be unpacked up to a limit."""


def write_zip(path: Path, members: Mapping[str, bytes], *, epoch: int) -> str:
    """Writes `path`, returns its SHA-256. `epoch`: every member's time. Raises ReleaseError."""
    moment = time.gmtime(min(max(epoch, _FIRST), _LAST))[:6]
    for name in members:
        if not _is_file_name(name):
            raise ReleaseError(
                f"{name!r} cannot be a member of a zip file", cause="Windows has no such file name"
            )
    with (
        new_file(path) as raw,
        zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as file,
    ):
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system, info.external_attr = _UNIX, _MODE << 16
            file.writestr(info, members[name], compresslevel=_LEVEL)
    return sha256_file(path)


def zip_members(path: Path) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """Members of a bounded zip file whose names are portable. Raises OSError, zipfile.BadZipFile."""
    with _open(path) as archive:
        infos = archive.infolist()
        if len(infos) > MEMBERS_LIMIT or sum(info.file_size for info in infos) > UNPACKED_LIMIT:
            raise zipfile.BadZipFile(f"it has more than {MEMBERS_LIMIT} members or {UNPACKED_LIMIT} bytes")
        for info in infos:
            if not _is_file_name(info.filename) or info.filename != info.orig_filename:
                raise zipfile.BadZipFile(f"{info.orig_filename!r} is not a portable name of a file")
            if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
                raise zipfile.BadZipFile(f"{info.filename!r} is not a regular file")
            if info.compress_type not in _BOUNDED:
                raise zipfile.BadZipFile(f"{info.filename!r} is neither stored nor deflated")
            with archive.open(info) as member:
                data = member.read(info.file_size + 1)  # bounded, unlike `ZipFile.read`; checks the CRC
            if len(data) != info.file_size:
                raise zipfile.BadZipFile(f"{info.filename!r} has {len(data)} bytes, not {info.file_size}")
            yield info, data


def read_zip_member(path: Path, name: str) -> bytes:
    """A member that is a text, empty when there is none. Raises OSError, zipfile.BadZipFile."""
    with _open(path) as archive:
        if name not in archive.namelist():
            return b""
        if (size := archive.getinfo(name).file_size) > 1 << 24:
            raise zipfile.BadZipFile(f"{name} has {size} bytes")
        return archive.read(name)


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    """Converts what `zipfile` raises for damaged and unsupported files to zipfile.BadZipFile."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (EOFError, RuntimeError, ValueError, struct.error, zlib.error) as error:
        raise zipfile.BadZipFile(str(error) or "it is truncated") from error


def digest_members(members: Mapping[str, bytes]) -> str:
    """SHA-256 over a line `<SHA-256>  <name>` for each member, by name, as sha256sum prints them."""
    lines = (f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_file_name(name: str) -> bool:
    """Whether Windows and Linux have such a file, below the folder into which the archive is unpacked."""
    parts = name.split("/")
    plain = name.isascii() and name.isprintable() and not set(name) & set('\\:*?"<>|')
    return plain and not any(part.endswith((".", " ")) or not part for part in parts)
