"""The store of a drop-in: a folder of torch/lib that is opened without following a link in its place.

Later paths in the store start at its descriptor (/proc/self/fd/N); messages have the caller's path.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from aotforge.base.files import output_errors, output_lock
from aotforge.deliver.dropin.inputs import IMAGES
from aotforge.errors import AotforgeError, DropInError, OutputError

STORE = ".aotforge-dropin"
ORIGINALS = "originals"
CURRENT = "current"
RECORD = "record.json"
IMAGE_SUMS = "images.json"
"""In a staged release: SHA-256 of its images. An installer that replaces PyTorch writes its own into that folder."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT = (".new", ".old")


@dataclass(frozen=True, kw_only=True)
class OpenStore:
    """A torch/lib, and the open store in it (None when there is none)."""

    folder: Path
    store: Path | None

    def existing(self) -> Path:
        """The store. Raises DropInError."""
        if self.store is None:
            raise DropInError(f"{self.folder} has no {STORE}")
        return self.store


@contextmanager
def open_store(folder: Path, *, make: bool) -> Iterator[OpenStore]:
    """Opens the store of `folder` (a torch/lib); with `make` creates and locks it.

    Raises DropInError for a store that is or has a link of another program, OutputError, OutputBusyError.
    """
    if make:
        _check_writable(folder)
        with output_errors(folder), suppress(FileExistsError):
            (folder / STORE).mkdir()
    if not os.path.lexists(folder / STORE):
        yield OpenStore(folder=folder, store=None)
        return
    handle = _open(folder / STORE)
    opened = f"/proc/self/fd/{handle}"
    try:
        _check_entries(Path(opened), folder / STORE)
        place = OpenStore(folder=folder, store=Path(opened))
        if make:
            with output_lock(place.existing() / "dropin"):
                yield place
        else:
            yield place
    except AotforgeError as error:
        error.what, error.cause, error.hint = (
            text.replace(opened, str(folder / STORE)) for text in (error.what, error.cause, error.hint)
        )
        raise
    finally:
        os.close(handle)


def _open(store: Path) -> int:
    try:
        return os.open(store, _OPEN)
    except NotADirectoryError:
        raise _not_ours(store, "is a link or a file, not a folder") from None
    except OSError as error:
        raise DropInError(f"{store} cannot be read: {error.strerror}") from error


def _check_writable(folder: Path) -> None:
    """Raises OutputError for the first folder that this user cannot write among those that a drop-in changes."""
    images = folder / IMAGES
    inner = [] if images.is_symlink() else [Path(path) for path, _, _ in os.walk(images)]
    for path in (folder, folder / STORE, *inner):
        if os.path.lexists(path) and not path.is_symlink() and not os.access(path, os.W_OK | os.X_OK):
            raise _unwritable(path)


def _unwritable(folder: Path) -> OutputError:
    owner, user = folder.stat().st_uid, os.geteuid()
    what = f"{folder} cannot be written by user {user}"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return OutputError(
            what,
            cause="its file system is mounted read-only",
            hint="mount it writable, or install PyTorch in a folder of another file system",
        )
    name = f"user {owner}" if owner else "root"
    return OutputError(
        what,
        cause=f"it belongs to {name} and has mode {stat.S_IMODE(folder.stat().st_mode):o}",
        hint=f"chmod u+wx {quote(str(folder))}" if owner == user else f"run the command as {name}",
    )


def _check_entries(store: Path, shown: Path) -> None:
    """Only `current` may be a link, and only to a folder of the store. What a killed run left is removed by name, never followed."""
    for entry in os.scandir(store):
        if entry.is_symlink() and entry.name != CURRENT and not entry.name.endswith(_LEFT):
            raise _not_ours(shown / entry.name, "is a link")
    link = store / CURRENT
    if os.path.lexists(link) and not (link.is_symlink() and is_plain_name(str(link.readlink()))):
        raise _not_ours(shown / CURRENT, "does not select a folder of the store")


def is_plain_name(name: str) -> bool:
    """True for the name of an entry: without a slash, and neither empty nor `.` nor `..`."""
    return "/" not in name and "\0" not in name and name not in {"", ".", ".."}


def _not_ours(path: Path, what: str) -> DropInError:
    return DropInError(
        f"{path} {what}",
        cause="a drop-in does not create it so; another program or user planted it",
        hint="inspect it, remove it, and reinstall PyTorch",
    )
