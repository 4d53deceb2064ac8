"""Releases and archives that no build makes, with sums that fit, for readers that must not trust them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.support.publishing import make_release, write_sums

IMAGES = "aotriton-0.11.2b-r1-images-amd-gfx908.tar.gz"
ASM = "aotriton-0.11.2b-r1-asm-amd-gfx908.tar.gz"
BELOW = "aotriton/lib/aotriton.images/amd-gfx908/"
GIB = 1 << 30


def tar_bytes(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar of headers and contents as given, with the end marker. Only GNU's format has all sizes."""
    headers = [
        info.tobuf(tarfile.USTAR_FORMAT if 0 <= info.size < 8**11 else tarfile.GNU_FORMAT)
        for info, _ in members
    ]
    contents = [data + b"\0" * (-len(data) % 512) for _, data in members]
    return b"".join(map(bytes.__add__, headers, contents)) + b"\0" * 1024


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A header."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def sparse_tar(name: str, claim: int = 3 * GIB) -> bytes:
    """A GNU sparse member whose header of 512 bytes claims `claim` bytes, all of them a hole."""
    block = bytearray(member(name, 0, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    block[386:398] = block[398:410] = b"%011o\0" % 0
    block[483:495] = b"%011o\0" % claim if claim < 1 << 33 else b"\x80" + claim.to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + b"\0" * 1024


def pax_tar(name: str, value: bytes) -> bytes:
    """A file whose extended header renames it to `value`."""
    record = b" path=" + value + b"\n"
    record = b"%d" % (len(record) + 3) + record if len(record) > 95 else b"%d" % (len(record) + 2) + record
    header = member("pax", len(record), tarfile.XHDTYPE)
    return tar_bytes((header, record), (member(name, 1), b"x"))


def zipped(tar: bytes) -> bytes:
    """The tar in gzip without name and time."""
    out = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as file:
        file.write(tar)
    return out.getvalue()


def hostile_release(
    folder: Path, images: bytes, change: Callable[[Path], object] | None = None, *, asm: bytes | None = None
) -> Path:
    """A release whose images archive is `images` and texts archive `asm`, else `images` too, with sums that
    list them."""
    make_release(folder, rocm=("7.1",), packs=())
    (folder / IMAGES).write_bytes(images)
    (folder / ASM).write_bytes(images if asm is None else asm)
    if change:
        change(folder)
    refit(folder)
    return folder


def refit(folder: Path) -> None:
    """Writes sums of what is in the folder now."""
    left = {"SHA256SUMS", "SHA256SUMS.uncompressed"}
    sums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name not in left and path.is_file()
    }
    tars = {name.removesuffix(".gz"): "0" * 64 for name in sums if name.endswith(".gz")}
    write_sums(folder, sums, tars)
