"""Wheels, unpacked without pip: `<name>.data/{purelib,platlib}` go into the same folder."""

import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError

_DATA = re.compile(r"^[^/]+\.data/([^/]+)/(.+)$")


def wheel_members(path: Path) -> Iterator[tuple[str, int, BinaryIO]]:
    """Path below the packages folder, mode and content of each file. Scripts and headers stay out. Raises ContainerError."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist(), key=lambda entry: entry.filename):
                name = _place(info.filename)
                if name is None or info.is_dir():
                    continue
                with archive.open(info) as content:
                    yield name, (info.external_attr >> 16) & 0o777 or stat.S_IRUSR, content  # type: ignore[misc]
    except zipfile.BadZipFile as error:
        raise ContainerError(
            f"{path} is not a valid wheel: {error}",
            hint="remove the file and build again: it is fetched anew",
        ) from error


def _place(name: str) -> str | None:
    if name.startswith("/") or ".." in name.split("/"):
        raise ContainerError(f"a wheel has a member outside its folder: {name}")
    if found := _DATA.match(name):
        return found[2] if found[1] in {"purelib", "platlib"} else None
    return name
