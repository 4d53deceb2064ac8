"""Trees of files as tar archives, in and out: the same files give the same bytes."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from aotforge.base.files import output_errors
from aotforge.errors import ExecutorError


def input_tree(members: Mapping[str, Path], files: Mapping[str, bytes] | None = None) -> bytes:
    """A tar of files by their names in it, and of contents that are on no disk; sorted, without times and owners. Raises OSError."""
    contents = {name: path.read_bytes() for name, path in members.items()} | dict(files or {})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(contents.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            if name in members and members[name].stat().st_mode & 0o100:
                info.mode = 0o755
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def unpack_outputs(data: bytes, folder: Path) -> None:
    """A step's outputs into `folder`: folders, files and symbolic links that stay inside. Raises ExecutorError for anything else,
    OutputError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                _unpack(tar, member, folder)
    except tarfile.TarError as error:
        raise ExecutorError(f"a step's outputs are no archive: {error}", hint="run it again") from error


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    name = PurePosixPath(member.name)
    path = folder / name
    link = name.parent / member.linkname if member.issym() else PurePosixPath()
    if name.is_absolute() or ".." in name.parts or link.is_absolute() or ".." in link.parts:
        raise ExecutorError(f"a step's outputs lead outside their folder: {member.name}")
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(exist_ok=True)
        elif member.issym():
            path.symlink_to(member.linkname)
        elif member.isfile() and (content := tar.extractfile(member)) is not None:
            with path.open("xb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
        else:
            raise ExecutorError(f"a step's outputs hold something else than files: {member.name}")
