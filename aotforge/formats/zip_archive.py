"""Deterministic zip files, written and read: bytes depend on members, given time and zlib.

Members are sorted, all of one time and mode; no folders, extra fields or comments. As deflate differs between zlib versions,
`digest_members` is the identity that is the same on every machine.
"""

import hashlib
import os
import struct
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import IO, BinaryIO

from aotforge.base.files import new_file
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file, unlike
from aotforge.formats.untrusted_file import check_holes, open_regular

_FIRST, _LAST = 315532800, 4354819199
"""1980-01-01 and 2107-12-31: the range of the format's times."""

_FREE, _RATIO, _MOST, _MOST_MEMBERS = 1024**2, 40, 2 * 1024**3, 10_000
"""Bounds of what is read: bytes of all members, free and per byte of the file and at most, and the number of members."""

_HEADER = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_ENTRY = struct.Struct("<4s2B5H3I5H2I")
"""An entry of the directory, without the name."""

_MOST_ENTRY = 512
"""Bytes of an entry of the directory on average."""
_LOCATOR, _LARGE = 20, b"PK\6\7"
"""What is before the record at the end where another record, of larger numbers, counts: its bytes, and how it begins."""

_PIECE = 4096
"""Bytes that are decompressed at a time: some four megabytes of content at most."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_MODE = 0o100644
_UNIX = 3
_VERSION = 20
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
    """A zip file that is not trusted, in the form of `write_zip` and in proportion to its size.

    Some programs find members by the directory, others by the headers before them: both find the same here, because every byte belongs to
    a listed member or to the directory. Raises OSError, zipfile.BadZipFile.
    """
    with ExitStack() as opened:
        file = opened.enter_context(open_regular(path))
        holes = check_holes(file)
        _check_end(file)
        archive = opened.enter_context(zipfile.ZipFile(file))
        infos, size = archive.infolist(), os.fstat(file.fileno()).st_size - holes
        if _names_clash(info.filename for info in infos):
            raise zipfile.BadZipFile("it has two members of one name, or one below another")
        if len(infos) > _MOST_MEMBERS or sum(one.file_size for one in infos) > min(
            _MOST, _FREE + _RATIO * size
        ):
            raise zipfile.BadZipFile("its members are out of proportion to the file")
        end = 0
        for info in sorted(infos, key=lambda one: one.header_offset):
            if info.header_offset != end:
                raise zipfile.BadZipFile(f"before {info.filename!r} are bytes of no member")
            end = _check_header(file, info)
            grown = info.file_size // 1000 + 64 if info.compress_type == zipfile.ZIP_DEFLATED else 0
            if info.compress_size > info.file_size + grown:  # a hole costs its author nothing
                raise zipfile.BadZipFile(
                    f"the compressed data of {info.filename!r} are larger than its content"
                )
        directory = sum(_ENTRY.size + len(info.filename) for info in infos)
        file.seek(end + directory)
        record = file.read(_END.size + 1)
        expected = (b"PK\5\6", 0, 0, len(infos), len(infos), directory, end, 0)
        if len(record) != _END.size or _END.unpack(record) != expected:
            raise zipfile.BadZipFile("after its members are bytes of none, or its directory is another one")
        for info in infos:
            end = _check_entry(file, info, end)
        yield archive


def _check_end(file: BinaryIO) -> None:
    """Bounds the directory, which `zipfile` reads in full when it opens a file. Raises zipfile.BadZipFile."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _END.size - _LOCATOR))
    record = (tail := file.read())[-_END.size :]
    if len(record) < _END.size or not record.startswith(b"PK\5\6") or tail.startswith(_LARGE):
        raise zipfile.BadZipFile("it is not a zip file, or bytes of none are after its members")
    if _END.unpack(record)[5] > _MOST_MEMBERS * _MOST_ENTRY:
        raise zipfile.BadZipFile("its directory is out of proportion")


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member of an archive of `open_zip`; all of its compressed bytes are used. Raises OSError, zipfile.BadZipFile, zlib.error."""
    assert archive.fp is not None
    archive.fp.seek(info.header_offset + _HEADER.size + len(info.filename))
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    data = _inflate(archive.fp, info) if deflated else archive.fp.read(info.compress_size)
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise zipfile.BadZipFile(f"{info.filename!r} is damaged")
    return data


def _inflate(file: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """Piece by piece: at once, the content would be in memory twice."""
    decoder, content, size, left = zlib.decompressobj(-zlib.MAX_WBITS), BytesIO(), 0, info.compress_size
    while left and not decoder.eof and size <= info.file_size:
        piece = file.read(min(_PIECE, left))
        if not piece:
            break
        left -= len(piece)
        size += content.write(decoder.decompress(piece, info.file_size + 1 - size))
    if left or not decoder.eof or decoder.unused_data:
        raise zipfile.BadZipFile(f"the data of {info.filename!r} end elsewhere than its header states")
    return content.getvalue()


def _check_header(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Compares the header before a member with the directory's entry; returns the offset behind the member. Raises zipfile.BadZipFile."""
    size = _HEADER.size + len(info.filename)
    file.seek(info.header_offset)
    header = file.read(size).ljust(size, b"\0")
    signature, version, flags, method, _, _, crc, stored, decoded, length, extra = _HEADER.unpack_from(header)
    same = (
        (signature, version) == (b"PK\3\4", _VERSION)
        and (flags, method, crc) == (info.flag_bits, info.compress_type, info.CRC)
        and (stored, decoded, length) == (info.compress_size, info.file_size, len(info.filename))
        and header[_HEADER.size :] == info.filename.encode("ascii", "replace")
    )
    plain = _is_file_name(info.filename) and info.filename == info.orig_filename and not flags
    if not same or not plain or extra or info.extra or info.comment or method not in _METHODS:
        raise zipfile.BadZipFile(f"the header of {info.filename!r} is not of the form that a release has")
    return info.header_offset + size + info.compress_size


def _check_entry(file: BinaryIO, info: zipfile.ZipInfo, at: int) -> int:
    """Compares the directory's entry at an offset with what `write_zip` writes; returns the offset behind it. Raises zipfile.BadZipFile.

    By system and attributes other programs make a link of a member. `zipfile` cuts a name, extra fields and a comment off where the
    directory ends; other programs read on.
    """
    file.seek(at)
    entry = _ENTRY.unpack(file.read(_ENTRY.size))
    start = (b"PK\1\2", _VERSION, _UNIX, _VERSION, 0, info.compress_type)
    sizes = (info.CRC, info.compress_size, info.file_size, len(info.filename), 0, 0)
    if (entry[:6], entry[8:]) != (start, (*sizes, 0, 0, _MODE << 16, info.header_offset)):
        raise zipfile.BadZipFile(
            f"the entry of {info.filename!r} in the directory is not of the form that a release has"
        )
    return at + _ENTRY.size + len(info.filename)


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
