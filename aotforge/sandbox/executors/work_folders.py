"""Work folders on this machine, named after their owners, removed with them or by a later command."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import CacheError
from aotforge.sandbox.executors import owner

_KEPT = ".kept"


@dataclass
class WorkFolder:
    """A folder of one step; `kept` is set when it is to stay."""

    path: Path
    kept: bool = False


@contextmanager
def work_folder(parent: Path) -> Iterator[WorkFolder]:
    """A new folder below `parent`, gone at the end unless it was kept. Raises CacheError."""
    folder = WorkFolder(parent / owner.new_name(owner.this_process()))
    try:
        folder.path.mkdir(parents=True)
        folder.path.chmod(0o755)
    except OSError as error:
        raise CacheError(
            f"{error.filename or parent} cannot be used: {error.strerror}",
            hint="make room there, or choose another cache folder",
        ) from error
    try:
        yield folder
    finally:
        if folder.kept:
            (folder.path / _KEPT).touch()
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


def reap_folders(parent: Path, *, kept: bool) -> list[str]:
    """Remove folders whose owners are gone; kept ones only if asked."""
    removed = []
    for path in sorted(parent.iterdir()) if parent.is_dir() else ():
        who = owner.owner_of(path.name)
        # a cache folder is this machine's or a shared one; what another machine made is left to it
        if who is not None and who.alive() is False and (kept or not (path / _KEPT).exists()):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed
