"""Debian binary packages, read without dpkg.

Format: deb(5), an `ar` archive with `debian-binary`, `control.tar.*` and `data.tar.*`.
"""

import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError

_MAGIC = b"!<arch>\n"
_ENTRY = 60


def data_members(path: Path) -> Iterator[tuple[tarfile.TarInfo, BinaryIO | None]]:
    """Every member of the package's data, in order, with its content where it is a file. Raises ContainerError."""
    with path.open("rb") as file, _reading(path), _tar(file, "data.tar", path) as archive:
        for info in archive:
            yield info, archive.extractfile(info) if info.isreg() else None  # type: ignore[misc]


def control(path: Path) -> str:
    """The package's control paragraph. Raises ContainerError."""
    with path.open("rb") as file, _reading(path), _tar(file, "control.tar", path) as archive:
        for info in archive:
            if info.name.removeprefix("./") == "control":
                content = archive.extractfile(info)
                return content.read().decode("utf-8") if content else ""
    raise _damaged(path, "it has no control file")


def _tar(file: BinaryIO, wanted: str, path: Path) -> tarfile.TarFile:
    name, content = _entry(file, wanted, path)
    if name.endswith(".zst"):
        import zstandard  # noqa: PLC0415 - Ubuntu's packages only

        stream = zstandard.ZstdDecompressor().stream_reader(content)
        return tarfile.open(fileobj=stream, mode="r|")
    return tarfile.open(fileobj=content, mode="r|*")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError) as error:
        raise _damaged(path, str(error)) from error


def _entry(file: BinaryIO, wanted: str, path: Path) -> tuple[str, BinaryIO]:
    """Name and bytes of the ar entry whose name begins with `wanted`."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _damaged(path, "it is not an ar archive")
    while len(header := file.read(_ENTRY)) == _ENTRY:
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        try:
            size = int(header[48:58])
        except ValueError:
            raise _damaged(path, f"entry {name!r} has no size") from None
        if name.startswith(wanted):
            content = file.read(size)
            if len(content) != size:
                raise _damaged(path, f"{name} is cut off")
            return name, io.BytesIO(content)
        file.seek(size + size % 2, io.SEEK_CUR)
    raise _damaged(path, f"it has no {wanted}")


def _damaged(path: Path, why: str) -> ContainerError:
    return ContainerError(
        f"{path} is not a valid Debian package: {why}",
        hint="remove the file and build again: it is fetched anew",
    )
