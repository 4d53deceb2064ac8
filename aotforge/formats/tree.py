"""Input files of steps as tar archives."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from aotforge.formats.archive import Member, entry, write_tar


def input_tree(members: Mapping[str, Path], files: Mapping[str, bytes] | None = None) -> bytes:
    """A deterministic tar of files by their names in it, and of contents in memory. Raises OSError."""
    contents = {name: path.read_bytes() for name, path in members.items()} | dict(files or {})
    runnable = {name for name, path in members.items() if path.stat().st_mode & 0o100}
    packed = io.BytesIO()
    entries = (
        entry(name, Member(content=data, executable=name in runnable))
        for name, data in sorted(contents.items())
    )
    write_tar(packed, entries, layout=tarfile.PAX_FORMAT)
    return packed.getvalue()
