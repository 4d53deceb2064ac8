"""Deterministic zip files, written and read: bytes depend on members, given time and zlib.

Members are sorted, all of one time and mode; no folders, extra fields or comments. As deflate differs between zlib versions,
`digest_members` is the identity that is the same on every machine.
"""

import hashlib
import os
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from aotforge.base.files import new_file
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file, unlike
from aotforge.formats.untrusted_file import MEMBERS_LIMIT, UNPACKED_LIMIT, open_regular

_FIRST, _LAST = 315532800, 4354819199
"""1980-01-01 and 2107-12-31: the range of the format's times."""

_FREE, _RATIO = 1024**2, 40
"""Bytes of all members that are read: free, and per byte of the file."""

_MODE = 0o100644
_UNIX = 3
_LEVEL = 9


def write_zip(path: Path, members: Mapping[str, bytes], *, epoch: int) -> str:
    """Writes `path` and returns its SHA-256. `epoch` is every member's time in seconds since 1970, clamped to the format's range.

    Raises ReleaseError for names that cannot be extracted everywhere.
    """
    moment = time.gmtime(min(max(epoch, _FIRST), _LAST))[:6]
    for name in members:
        if not _is_file_name(name):
            raise ReleaseError(
                f"{name!r} cannot be a member of a zip file", cause="Windows has no such file name"
            )
    if _names_clash(members):
        raise ReleaseError(f"{path.name}: two members cannot be unpacked beside each other")
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


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A bounded zip file of regular files with portable names. Raises OSError, zipfile.BadZipFile."""
    with open_regular(path) as file, _damage():
        archive = zipfile.ZipFile(file)
        infos, size = archive.infolist(), os.fstat(file.fileno()).st_size
        if len(infos) > MEMBERS_LIMIT or sum(one.file_size for one in infos) > min(
            UNPACKED_LIMIT, _FREE + _RATIO * size
        ):
            raise zipfile.BadZipFile("its members are out of proportion to the file")
        if _names_clash(info.filename for info in infos):
            raise zipfile.BadZipFile("it has two members of one name, or one below another")
        for info in infos:
            _check_member(info)
        yield archive


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member of an archive of `open_zip`. Raises OSError, zipfile.BadZipFile."""
    with _damage(), archive.open(info) as member:
        data = member.read(info.file_size + 1)  # bounded, unlike `ZipFile.read`; checks the CRC
        if len(data) != info.file_size:
            raise zipfile.BadZipFile(f"{info.filename!r} has {len(data)} bytes, not {info.file_size}")
        return data


@contextmanager
def _damage() -> Iterator[None]:
    """What `zipfile` raises for damaged and unsupported files, as zipfile.BadZipFile."""
    try:
        yield
    except (EOFError, RuntimeError, ValueError, struct.error, zlib.error) as error:
        raise zipfile.BadZipFile(str(error) or "it is truncated") from error


def _check_member(info: zipfile.ZipInfo) -> None:
    if not _is_file_name(info.filename) or info.filename != info.orig_filename:
        raise zipfile.BadZipFile(f"{info.orig_filename!r} is not a portable name of a file")
    if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
        raise zipfile.BadZipFile(f"{info.filename!r} is not a regular file")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile(f"{info.filename!r} is neither stored nor deflated")


def digest_members(members: Mapping[str, bytes]) -> str:
    """SHA-256 over a line `<SHA-256>  <name>` for each member, by name, as sha256sum prints them."""
    lines = (f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _names_clash(names: Iterable[str]) -> bool:
    """True where one name is another one on Windows, or a folder of it."""
    ordered = sorted(name.lower().replace("/", "\0") for name in names)
    return any(f"{after}\0".startswith(f"{name}\0") for name, after in pairwise(ordered))


def _is_file_name(name: str) -> bool:
    """Whether Windows and Linux have such a file, below the folder into which the archive is unpacked."""
    parts = name.split("/")
    plain = name.isascii() and name.isprintable() and not set(name) & set('\\:*?"<>|')
    return plain and not any(part.endswith((".", " ")) or not part for part in parts)
