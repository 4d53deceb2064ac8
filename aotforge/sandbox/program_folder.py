"""Temporary folder in which a release's programs write."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_A_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def program_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder for programs of others. Python's own, at the end, changes modes through links in it (3.11.7), and recurses."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """Removes a folder with what other programs, which have ended, made in it: folders of every mode and depth. No link is followed. Raises
    OSError."""
    handle = os.open(folder, _A_FOLDER)
    try:
        for below in _folders_left(handle):
            with _accessible(below, handle) as inside:
                # to the top: a path of every depth has no name that the system takes
                for nested in _folders_left(inside):
                    with _accessible(nested, inside):
                        os.rename(nested, secrets.token_hex(16), src_dir_fd=inside, dst_dir_fd=handle)
            os.rmdir(below, dir_fd=handle)
    finally:
        os.close(handle)
    folder.rmdir()


def _folders_left(handle: int) -> Iterator[str]:
    """Names of folders in a folder, whose files are removed, until there are none: the caller takes each away. Raises OSError."""
    found = True
    while found:
        found = False
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found = True
                    yield entry.name
                else:
                    os.unlink(entry.name, dir_fd=handle)


@contextmanager
def _accessible(name: str, above: int) -> Iterator[int]:
    """A descriptor of a folder, whose mode is changed. Raises OSError."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        Path(f"/proc/self/fd/{place}").chmod(0o700)
        handle = os.open(name, _A_FOLDER, dir_fd=above)
    finally:
        os.close(place)
    try:
        yield handle
    finally:
        os.close(handle)
