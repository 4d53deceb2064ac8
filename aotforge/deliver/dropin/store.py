"""The store of a drop-in in torch/lib, opened so that planted links change nothing.

torch/lib and the store are opened once; every later path starts at these descriptors (/proc/self/fd/N), so neither can be
replaced by a link meanwhile. The store must belong to this user and be writable by this user only. Folders that are copied are
entered by name, so only this user and root may write to torch/lib, to its images and to folders above it.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from aotforge.base.cache_trust import changeable, owner_fault
from aotforge.base.files import open_up, output_errors, output_lock
from aotforge.deliver.dropin.inputs import IMAGES
from aotforge.errors import AotforgeError, DropInError

STORE = ".aotforge-dropin"
ORIGINALS = "originals"
CURRENT = "current"
RECORD = "record.json"
IMAGE_SUMS = "images.json"
"""In a staged release: SHA-256 of its images. An installer that replaces PyTorch writes its own into that folder."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o755
_LEFT = (".new", ".old")


@dataclass(frozen=True, kw_only=True)
class OpenStore:
    """`folder` and `store` are paths of open descriptors: torch/lib, and the store in it (None when there is none)."""

    folder: Path
    store: Path | None

    def existing(self) -> Path:
        """The store. Raises DropInError."""
        if self.store is None:
            raise DropInError(f"{self.folder} has no {STORE}")
        return self.store


@contextmanager
def open_store(folder: Path, *, make: bool) -> Iterator[OpenStore]:
    """Opens `folder` (a torch/lib) and its store; with `make` creates and locks the store.

    Raises DropInError for a store that is a link, of another user, or writable by others, and for a torch/lib that another user can
    change, OutputError, OutputBusyError.
    """
    descriptors: list[int] = []
    shown: dict[str, str] = {}

    def opened(name: str | Path, real: Path, parent: int | None = None) -> Path:
        descriptors.append(
            os.open(name, _OPEN if parent is not None else _OPEN & ~os.O_NOFOLLOW, dir_fd=parent)
        )
        path = f"/proc/self/fd/{descriptors[-1]}"
        shown[path] = str(real)
        return Path(path)

    try:
        with output_errors(folder):
            base = opened(folder, folder)
            _check_torch_lib(descriptors[0], base, folder)
            store = None
            if make:
                _make(descriptors[0])
            if _exists(descriptors[0]):
                _check_kind(descriptors[0], folder)
                store = opened(STORE, folder / STORE, descriptors[0])
                _check_owner(descriptors[1], folder)  # of what was opened: the name may lead elsewhere by now
                _check_entries(store, folder / STORE)
                _check_tree(store, folder)  # an installer makes folders there, through a link of the drop-in
        place = OpenStore(folder=base, store=store)
        if make:
            with output_lock(place.existing() / "dropin", opened=True):
                yield place
        else:
            yield place
    except AotforgeError as error:
        for path, real in shown.items():
            error.what, error.cause, error.hint = (
                text.replace(path, real) for text in (error.what, error.cause, error.hint)
            )
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _make(folder: int) -> None:
    try:
        os.mkdir(STORE, _MODE, dir_fd=folder)
    except FileExistsError:
        return
    open_up(STORE, parent=folder)


def _exists(folder: int) -> bool:
    try:
        os.stat(STORE, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _check_torch_lib(handle: int, folder: Path, shown: Path) -> None:
    """Checks what was opened, and the way that led there: the name may lead elsewhere by now."""
    if fault := owner_fault(handle):
        raise _changeable(shown, f"{shown} {fault}", hint=f"run this as user {os.fstat(handle).st_uid}")
    _check_folder(shown, shown)
    _check_folder(folder, shown)
    if not (folder / IMAGES).is_symlink():
        _check_tree(folder / IMAGES, shown)


def _check_tree(folder: Path, torch_lib: Path) -> None:
    """Raises as `_check_folder` for each folder of the tree; what is in one is entered after it was checked."""
    for path, _, _ in os.walk(folder, onerror=_refuse_unlisted):
        _check_folder(Path(path), torch_lib, needed=False)  # another run may have removed it


def _refuse_unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # there is none, or another run has removed it
        raise DropInError(f"{error.filename} cannot be read: {error.strerror}") from error


def _check_folder(folder: Path, torch_lib: Path, *, needed: bool = True) -> None:
    """Raises DropInError when another user can add entries to a folder, or exchange them, it, or a folder above it, and for one that is
    `needed` and not there."""
    fault = changeable(folder, needed=needed)
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_ISVTX and mode & 0o022:  # others cannot exchange entries, but add some
            fault = f"{folder} has mode {mode:o}: others can add to what is in it"
    if fault:
        raise _changeable(torch_lib, fault)


def _changeable(torch_lib: Path, fault: str, *, hint: str = "") -> DropInError:
    return DropInError(
        fault,
        cause="folders that another user exchanges by links while they are copied make private files readable to all",
        hint=hint
        or f"install PyTorch again where only this user can write, or take that right from others: chmod -R go-w {quote(str(torch_lib))}",
    )


def _check_kind(folder: int, shown: Path) -> None:
    if not stat.S_ISDIR(os.stat(STORE, dir_fd=folder, follow_symlinks=False).st_mode):
        raise _planted(shown / STORE, "is a link or a file, not a folder")


def _check_owner(store: int, shown: Path) -> None:
    found, path = os.fstat(store), shown / STORE
    if found.st_uid != os.geteuid():
        raise DropInError(
            f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}",
            cause="another user dropped a release in, or planted this folder",
            hint=f"run this as user {found.st_uid}, or reinstall PyTorch after removing its folder",
        )
    if found.st_mode & 0o022:
        raise _planted(path, f"has mode {found.st_mode & 0o777:o}: other users may write to it")


def _check_entries(store: Path, shown: Path) -> None:
    """Only `current` may be a link, and only to a folder of the store. What a killed run left is removed by name, never followed."""
    for entry in os.scandir(store):
        if entry.is_symlink() and entry.name != CURRENT and not entry.name.endswith(_LEFT):
            raise _planted(shown / entry.name, "is a link")
    link = store / CURRENT
    if os.path.lexists(link) and not (link.is_symlink() and is_plain_name(str(link.readlink()))):
        raise _planted(shown / CURRENT, "does not select a folder of the store")


def is_plain_name(name: str) -> bool:
    """True for the name of an entry: without a slash, and neither empty nor `.` nor `..`."""
    return "/" not in name and "\0" not in name and name not in {"", ".", ".."}


def _planted(path: Path, what: str) -> DropInError:
    return DropInError(
        f"{path} {what}",
        cause="this program did not create it so; another user may have planted it",
        hint="inspect it, remove it, and reinstall PyTorch",
    )
