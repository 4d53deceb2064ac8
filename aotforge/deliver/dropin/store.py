"""The store of a drop-in: a folder of torch/lib that is never a link, and whose entries are none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from shlex import quote

from aotforge.base.files import output_errors, output_lock
from aotforge.deliver.dropin.inputs import IMAGES
from aotforge.errors import DropInError, OutputError

STORE = ".aotforge-dropin"
ORIGINALS = "originals"
CURRENT = "current"
RECORD = "record.json"
IMAGE_SUMS = "images.json"
"""In a staged release: SHA-256 of its images. An installer that replaces PyTorch writes its own into that
folder."""

_LEFT = (".new", ".old")


@contextmanager
def open_store(folder: Path, *, make: bool) -> Iterator[Path]:
    """The store of `folder` (a torch/lib), which may be missing; with `make` it is created and locked.

    Raises DropInError for a store that is or has a link of another program, OutputError, OutputBusyError.
    """
    store = folder / STORE
    if make:
        _check_writable(folder)
        with output_errors(folder), suppress(FileExistsError):
            store.mkdir()
    if os.path.lexists(store):
        if store.is_symlink() or not store.is_dir():
            raise _not_ours(store, "is a link or a file, not a folder")
        _check_entries(store)
    with output_lock(store / "dropin") if make else nullcontext():
        yield store


def _check_writable(folder: Path) -> None:
    """Raises OutputError for the first folder that this user cannot write among those that a drop-in
    changes."""
    images = folder / IMAGES
    inner = [] if images.is_symlink() else [Path(path) for path, _, _ in os.walk(images)]
    for path in (folder, folder / STORE, *inner):
        if path.is_dir() and not path.is_symlink() and not os.access(path, os.W_OK | os.X_OK):
            owner, user = path.stat().st_uid, os.geteuid()
            name = f"user {owner}" if owner else "root"
            raise OutputError(
                f"{path} cannot be written by user {user}",
                cause=f"it belongs to {name}, or its file system is mounted read-only",
                hint=f"chmod u+wx {quote(str(path))}" if owner == user else f"run the command as {name}",
            )


def _check_entries(store: Path) -> None:
    """Only `current` may be a link, and only to a folder of the store. What a killed run left is removed by
    name, never followed."""
    for entry in store.iterdir():
        if entry.is_symlink() and entry.name != CURRENT and not entry.name.endswith(_LEFT):
            raise _not_ours(entry, "is a link")
    link = store / CURRENT
    if os.path.lexists(link) and not (link.is_symlink() and is_plain_name(str(link.readlink()))):
        raise _not_ours(link, "does not select a folder of the store")


def is_plain_name(name: str) -> bool:
    """True for the name of an entry: without a slash, and neither empty nor `.` nor `..`."""
    return "/" not in name and "\0" not in name and name not in {"", ".", ".."}


def _not_ours(path: Path, what: str) -> DropInError:
    return DropInError(
        f"{path} {what}",
        cause="a drop-in does not create it so; another program or user planted it",
        hint="inspect it, remove it, and reinstall PyTorch",
    )
