"""Trees of files as tar archives, in and out: the same files give the same bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import ExecutorError
from aotforge.formats.folder_sink import FolderSink
from aotforge.formats.untrusted_tar import UnsafeArchiveError, read_tar


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
    """Unpacks a step's outputs, an uncompressed tar, into `folder`, which must not exist. Raises ExecutorError, OutputError."""
    with output_errors(folder):
        folder.mkdir(parents=True)
        try:
            read_tar([data], FolderSink(root=folder))
        except UnsafeArchiveError as error:
            raise ExecutorError(
                f"the step's outputs are not a valid archive: {error}", hint="run it again"
            ) from error
