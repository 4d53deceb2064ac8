"""Files of steps as tar archives: inputs are packed, outputs unpacked."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import ExecutorError
from aotforge.formats.archive import Member, entry, write_tar
from aotforge.formats.tar_reader import FolderWriter, UnsafeArchiveError, read_tar


def input_tree(members: Mapping[str, Path], files: Mapping[str, bytes] | None = None) -> bytes:
    """A deterministic tar of files by their names in it, and of contents that are in memory. Raises OSError."""
    contents = {name: path.read_bytes() for name, path in members.items()} | dict(files or {})
    runnable = {name for name, path in members.items() if path.stat().st_mode & 0o100}
    packed = io.BytesIO()
    entries = (
        entry(name, Member(content=data, executable=name in runnable))
        for name, data in sorted(contents.items())
    )
    write_tar(packed, entries, layout=tarfile.PAX_FORMAT)
    return packed.getvalue()


def unpack_outputs(data: bytes, folder: Path) -> None:
    """Unpacks a step's outputs, an uncompressed tar, into `folder`, which must not exist. Raises ExecutorError, OutputError."""
    with output_errors(folder):
        folder.mkdir(parents=True)
        try:
            read_tar([data], FolderWriter(root=folder))
        except UnsafeArchiveError as error:
            raise ExecutorError(
                f"the step's outputs are not a valid archive: {error}", hint="run it again"
            ) from error
