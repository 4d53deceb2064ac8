"""Wheels: written deterministically, read back, and unpacked without pip."""

import base64
import hashlib
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aotforge.errors import ContainerError, ReleaseError
from aotforge.formats.zip_archive import read_zip_member, write_zip, zip_members

_DATA = re.compile(r"^[^/]+\.data/([^/]+)/(.+)$")
ATTENTION = "aotforge-attention"
"""The project whose wheel has the library."""

FLASH = "aotforge-flash"
"""The project with flash-attn's functions, on that library."""

CONSOLE = "aotforge"
"""The project of the console script."""

_NAME = re.compile(r"(?P<name>\w+)-(?P<version>[\w.+!]+)-py3-none-(?P<platform>\w+)\.whl", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class WheelName:
    """File name of a wheel without compiled modules. `name`: normalised, aotforge-attention."""

    name: str
    version: str
    platform: str = "any"

    def __str__(self) -> str:
        return f"{self._stem}-{self.tag}.whl"

    @property
    def tag(self) -> str:
        """Python, ABI and platform: py3-none-any."""
        return f"py3-none-{self.platform}"

    @property
    def info(self) -> str:
        """The folder of its metadata: aotforge_attention-0.11.2.1.dist-info."""
        return f"{self._stem}.dist-info"

    @property
    def _stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"


def parse_wheel_name(file: str) -> WheelName | None:
    """None for another file name, and for one that is spelled otherwise."""
    match = _NAME.fullmatch(file)
    if not match:
        return None
    name = match["name"].lower().replace("_", "-")
    made = WheelName(name=name, version=match["version"], platform=match["platform"])
    return made if str(made) == file else None


def is_own_project(name: str) -> bool:
    """True for the projects that releases have: console script, library, its front end and images."""
    return name in {CONSOLE, ATTENTION, FLASH} or name.startswith("aotforge-images-")


def is_attention_wheel(file: str) -> bool:
    """True for the file name of a wheel with the library."""
    wheel = parse_wheel_name(file)
    return wheel is not None and wheel.name == ATTENTION


def write_wheel(
    folder: Path,
    name: WheelName,
    members: Mapping[str, bytes],
    info: Mapping[str, bytes],
    *,
    epoch: int,
) -> Path:
    """A wheel in `folder`. `info`: files of its metadata folder but WHEEL and RECORD. Raises ReleaseError."""
    pure = str(name.platform == "any").lower()
    wheel = f"Wheel-Version: 1.0\nGenerator: aotforge\nRoot-Is-Purelib: {pure}\nTag: {name.tag}\n"
    described = {"WHEEL": wheel.encode("ascii"), **info}
    files = dict(members) | {f"{name.info}/{file}": data for file, data in described.items()}
    record = f"{name.info}/RECORD"
    files[record] = record_bytes(files, record)
    write_zip(folder / str(name), files, epoch=epoch)
    return folder / str(name)


def record_bytes(members: Mapping[str, bytes], own: str) -> bytes:
    """RECORD: path, SHA-256 and size of every member; `own`, the record itself, without."""
    lines = []
    for name, data in sorted(members.items()):
        if name != own:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
            lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{own},,\n"]).encode("ascii")


def read_wheel(path: Path) -> dict[str, bytes]:
    """Every member of a wheel, by name. Raises ReleaseError."""
    with _wheel_errors(path):
        return {info.filename: data for info, data in zip_members(path)}


def read_metadata(path: Path, name: WheelName) -> bytes:
    """METADATA of a wheel, empty when there is none. Raises ReleaseError."""
    with _wheel_errors(path):
        return read_zip_member(path, f"{name.info}/METADATA")


@contextmanager
def _wheel_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, zipfile.BadZipFile) as error:
        raise ReleaseError(
            f"{path} is not a valid wheel: {error}", hint="fetch the release again, or make it again"
        ) from error


def wheel_members(path: Path) -> Iterator[tuple[str, int, BinaryIO]]:
    """Path below the packages folder, mode and content of each file. Raises ContainerError."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist(), key=lambda entry: entry.filename):
                name = _place(info.filename)
                if name is None or info.is_dir():
                    continue
                with archive.open(info) as content:
                    mode = (info.external_attr >> 16) & 0o777 or stat.S_IRUSR
                    yield name, mode, content  # type: ignore[misc]
    except zipfile.BadZipFile as error:
        raise ContainerError(
            f"{path} is not a valid wheel: {error}",
            hint="remove the file and build again: it is fetched anew",
        ) from error


def _place(name: str) -> str | None:
    if name.startswith("/") or ".." in name.split("/"):
        raise ContainerError(f"a wheel has a member outside its folder: {name}")
    if match := _DATA.match(name):
        return match[2] if match[1] in {"purelib", "platlib"} else None
    return name
