"""Ownership labels for containers, temporary folders and cgroups; used by `reap`."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import errors_as, make_folders
from aotforge.errors import CacheError

LABEL = "aotforge.owner"
"""Label of every container of this project."""

DEADLINE = "aotforge.deadline"
KEEP = "aotforge.keep"
GRACE_SECONDS = 3600
"""Added to deadlines of owners on other machines, whose clocks differ."""

_PREFIX = "aotforge-"
_KEPT_MARK = ".kept"


@dataclass(frozen=True)
class Owner:
    """A process, unambiguously: `machine` is the boot and the PID namespace, `started` its start time in clock ticks since that
    boot (proc(5))."""

    machine: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.started}"

    def alive(self) -> bool | None:
        """None for a process of another machine, another PID namespace or before a restart."""
        if self.machine != machine():
            return None
        found = started(self.pid)
        return found == self.started or (found < 0 and self._is_hidden())

    def _is_hidden(self) -> bool:
        """The process exists and /proc does not show it to this user (mount option hidepid)."""
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            pass
        return False


def machine() -> str:
    """This boot of this machine, and the PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    return f"{boot[:16]}.{namespace}"


def started(pid: int) -> int:
    """Start time of a process, -1 when it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in {b"Z", b"X"} else int(fields[19])


def this_process() -> Owner:
    """The running process as an owner."""
    return Owner(machine(), os.getpid(), started(os.getpid()))


def parse(text: str) -> Owner | None:
    """Inverse of `str`; None for other texts."""
    parts = text.split("-")
    if len(parts) < 3 or not parts[1].isdigit() or not parts[2].isdigit():
        return None
    return Owner(parts[0], int(parts[1]), int(parts[2]))


def new_name(owner: Owner | None = None) -> str:
    """A unique name for a container, folder or cgroup that contains its owner (default: this process)."""
    return f"{_PREFIX}{owner or this_process()}-{secrets.token_hex(4)}"


def is_orphaned(name: str) -> bool:
    """The name contains a process of this machine that is gone. What another machine made in a shared folder is not."""
    owner = parse(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    return owner is not None and owner.alive() is False


def labels(owner: Owner, *, seconds: float, keep: bool) -> dict[str, str]:
    """Labels of a container that is needed for at most `seconds` from now."""
    marks = {LABEL: str(owner), DEADLINE: str(int(time.time() + seconds))}
    return marks | ({KEEP: "1"} if keep else {})


def is_named(name: str, marks: Mapping[str, str]) -> bool:
    """The name is one that the owner on the labels made. Images of others can have the labels, and their containers get them."""
    return name.startswith(f"{_PREFIX}{marks.get(LABEL)}-")


def abandoned(marks: Mapping[str, str], *, now: float) -> bool:
    """A container with these labels is not needed: its process is gone (a kept one stays until its deadline), or that process
    is on another machine and the deadline has passed."""
    try:
        owner, deadline = parse(marks.get(LABEL, "")), int(marks.get(DEADLINE, ""))
    except ValueError:
        return False
    if owner is None:
        return False
    alive = owner.alive()
    if alive is None:
        return now > deadline + GRACE_SECONDS
    return not alive and (KEEP not in marks or now > deadline)


def releasable(marks: Mapping[str, str]) -> bool:
    """A kept container that a user may remove: its process is gone."""
    owner = parse(marks.get(LABEL, ""))
    return KEEP in marks and owner is not None and not owner.alive()


@dataclass
class WorkFolder:
    """A folder of one step; `kept` is set when it is to stay."""

    path: Path
    kept: bool = False


@contextmanager
def work_folder(parent: Path) -> Iterator[WorkFolder]:
    """A new folder below `parent` that no other user can enter, removed at the end unless it is kept. Raises CacheError."""
    folder = WorkFolder(parent / new_name())
    with cache_errors(parent):
        make_folders(parent)
        folder.path.mkdir(0o700)
    try:
        yield folder
    finally:
        if folder.kept:
            (folder.path / _KEPT_MARK).touch()
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


def reap_folders(parent: Path, *, kept: bool) -> list[str]:
    """Removes orphaned work folders; kept ones only with `kept`."""
    removed = []
    for path in sorted(parent.glob(f"{_PREFIX}*")):
        if is_orphaned(path.name) and (kept or not (path / _KEPT_MARK).exists()):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed


def cache_errors(folder: Path) -> AbstractContextManager[None]:
    """Turns the system's errors into CacheError; no output folder has been changed."""
    hint = (
        f"free some space in the cache folder {folder}, or choose another one with --cache; then build again"
    )
    return errors_as(CacheError, folder, hint=hint)
