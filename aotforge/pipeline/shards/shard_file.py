"""A part of a build as one file: an uncompressed USTAR archive whose first member says what it is.

Members: `part.json`, then the files that it lists, sorted. `part.json` is canonical JSON: `{"format": 1, "about": {...}, "files": {name:
{"sha256": ..., "size": ..., "executable": ...} or {"link": target}}, "sha256": ...}`, the last one of the JSON of the rest. Equal
parts give equal bytes, and whatever is not byte for byte what `encode` makes of the part it says it is, is damaged: one flipped bit
anywhere is found.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aotforge.errors import ShardError
from aotforge.plan.jobs import canonical_json

FORMAT = 1
SUFFIX = ".part.tar"
_HEADER = "part.json"


@dataclass(frozen=True, kw_only=True)
class PartFile:
    """A regular file, or a symbolic link to `link`."""

    content: bytes = b""
    executable: bool = False
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """`about` are JSON values that say which part of which build this is; `files` by name."""

    about: Mapping[str, Any]
    files: Mapping[str, PartFile]


def encode(part: Part) -> bytes:
    """The part as a file's bytes."""
    sink = io.BytesIO()
    listed = {name: _listed(file) for name, file in part.files.items()}
    said = {"format": FORMAT, "about": part.about, "files": listed}
    header = canonical_json({**said, "sha256": hashlib.sha256(canonical_json(said).encode()).hexdigest()})
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, _HEADER, PartFile(content=header.encode()))
        for name in sorted(part.files):
            _add(tar, name, part.files[name])
    return sink.getvalue()


def decode(data: bytes, path: Path) -> Part:
    """Inverse of `encode`. Raises ShardError naming `path` for anything but the bytes of a part."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            members = {info.name: _read(tar, info) for info in tar}
        header = json.loads(members.pop(_HEADER).content)
        found = header["format"]
        if found != FORMAT:
            raise ShardError(
                f"{path} is a part of format {found}, this version reads format {FORMAT}",
                cause="it was made by another version of aotforge",
                hint="make all parts and gather them with the same revision",
            )
        part = Part(about=header["about"], files=members)
        _check_names(members)
        intact = encode(part) == data
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    if not intact:
        raise damaged(path, "its bytes are not those of the part that it says it is")
    return part


def damaged(path: Path, reason: str) -> ShardError:
    """The error for a file whose content is not what was written."""
    return ShardError(
        f"{path} is damaged: {reason}",
        cause="it was cut short or altered on its way, or is no part of a build",
        hint="fetch it again, or make it again",
    )


def _check_names(files: Mapping[str, PartFile]) -> None:
    """Files go below the folder that they are unpacked to, whoever made the part. Raises ValueError."""
    for name, file in files.items():
        if PurePosixPath(name).is_absolute() or {"..", "."} & set(name.split("/")):
            raise ValueError(f"a member is named {name}")
        if file.link and ("/" in file.link or file.link in {"..", "."}):
            raise ValueError(f"{name} links to {file.link}")


def _listed(file: PartFile) -> dict[str, object]:
    if file.link:
        return {"link": file.link}
    return {
        "sha256": hashlib.sha256(file.content).hexdigest(),
        "size": len(file.content),
        "executable": file.executable,
    }


def _add(tar: tarfile.TarFile, name: str, file: PartFile) -> None:
    info = tarfile.TarInfo(name)
    if file.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.link, 0o777
    else:
        info.size, info.mode = len(file.content), 0o755 if file.executable else 0o644
    tar.addfile(info, io.BytesIO(file.content))


def _read(tar: tarfile.TarFile, info: tarfile.TarInfo) -> PartFile:
    if info.issym():
        return PartFile(link=info.linkname)
    stream = tar.extractfile(info) if info.isreg() else None
    if stream is None:
        raise ValueError(f"{info.name} is no file")
    return PartFile(content=stream.read(), executable=bool(info.mode & 0o100))
