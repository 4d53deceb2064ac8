"""Checks of a cache folder, whose content is executed: only this user and root may write it."""

import errno
import grp
import os
import pwd
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from shlex import quote

from aotforge.errors import CacheError

_REFUSED = ';"$\\:'
"""Characters that CMake, shells and lists of folders such as LD_LIBRARY_PATH interpret, besides control characters."""

_ALL_USERS = ["0", "0", "4294967295"]
"""/proc/self/uid_map where every user of the machine has the same number here."""

ACCESS_ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
"""Extended attributes of a folder's ACL, and of the one that new entries get."""

_ACL_ENTRY = struct.Struct("<HHI")
_ACL_ENTRIES_AT = 4
_MAY_WRITE = 2
_OTHERS = {ACCESS_ACL: {0x02, 0x08}, DEFAULT_ACL: {0x02, 0x04, 0x08, 0x20}}
"""Tags whose rights the mode does not show: named users and groups, in new entries also their group and all others (ACL_USER, ACL_GROUP,
ACL_GROUP_OBJ and ACL_OTHER of Linux' posix_acl.h)."""

_PARENTS = ("", "containers", "containers/trees")
"""Folders of a cache whose entries are one kind of object each."""

_NESTED = (
    "images-",
    "verdicts-",
    "runtime",
    "trust",
    "tune-",
    "builds",
    "executors",
    "sources",
    "check-",
    "downloads",
)
"""Starts of names of folders whose objects are in folders of their own, or that hold folders made one by one."""

_LINKS = 40
"""Of a path, as many as Linux follows."""

_CAUSE = "native code there could be replaced, which this process would execute"


def check_cache(folder: Path) -> None:
    """Raises CacheError when `folder` exists and belongs to another user, when others can write to it, or can replace it or a folder
    above it."""
    # without a status it is made later, or its use reports the reason
    fault, status = _look(folder, needed=False, end=False)
    if status and status.st_uid not in _trusted_users():
        raise CacheError(
            f"cache folder {folder} belongs to user {status.st_uid}, not to user {os.geteuid()}",
            cause=_CAUSE,
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
    if status and (mode := stat.S_IMODE(status.st_mode)) & 0o022:
        raise CacheError(
            f"cache folder {folder} has mode {mode:o}: other users can write to it",
            cause=_CAUSE,
            hint=f"remove it and build again, or, if only users that you trust could write, chmod -R go-w {quote(str(folder))}",
        )
    if not fault and status and acl_grants_write(folder, DEFAULT_ACL):
        raise CacheError(
            f"cache folder {folder} has an ACL that lets other users write to new files in it",
            cause=_CAUSE,
            hint=f"remove it and build again where no folder above has such an ACL, or setfacl -R -b {quote(str(folder))}",
        )
    if fault:
        raise CacheError(
            f"cache folder {folder} is not safe: {fault}",
            cause=_CAUSE,
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )


def cache_fault(folder: Path) -> str:
    """The words for a cache folder of another user than this one and root, or that every user can write; empty for others."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    mode = stat.S_IMODE(status.st_mode)
    return f"has mode {mode:o}: every user can write to it" if mode & 0o1002 == 0o002 else ""


def check_cache_folders(folder: Path) -> None:
    """Raises as `check_cache` also for the folders in it and those of its root filesystems: a backup may have restored them with their
    owners, or a link may lead to another disk."""
    check_cache(folder)
    for below in _PARENTS:
        for entry in _entries(folder / below):
            # also where a link leads to nothing now: who owns what is above its end can make a folder there
            if entry.is_symlink() or entry.is_dir():
                check_cache(Path(entry.path))
            if not below and entry.name.startswith(_NESTED):
                for nested in _entries(Path(entry.path)):
                    with suppress(FileNotFoundError):  # removed meanwhile
                        mode = nested.stat(follow_symlinks=False).st_mode
                        if stat.S_ISLNK(mode) or mode & 0o022 or owner_fault(Path(nested.path)):
                            check_cache(Path(nested.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def owner_fault(path: Path | int) -> str:
    """The words for a file, folder or link of another user than this one and root; empty for others and where there is none. A number is
    an open descriptor."""
    try:
        return _owner_fault(os.fstat(path) if isinstance(path, int) else path.lstat())
    except OSError:
        return ""


def _owner_fault(status: os.stat_result) -> str:
    owner = status.st_uid
    return "" if owner in _trusted_users() else f"belongs to user {owner}, not to user {os.geteuid()}"


def file_fault(status: os.stat_result) -> str:
    """The words for an open file that another user owns or can write; empty for others. A folder's check is not enough for files that
    were copied into it with their owners."""
    mode = stat.S_IMODE(status.st_mode)
    return _owner_fault(status) or (f"has mode {mode:o}: other users can write it" if mode & 0o022 else "")


def read_own(path: Path) -> bytes:
    """The content of a file of a cache. Raises OSError, also for one with a `file_fault`."""
    with path.open("rb") as file:
        if fault := file_fault(os.fstat(file.fileno())):
            raise PermissionError(errno.EPERM, fault, str(path))
        return file.read()


def replaceable(path: Path, *, needed: bool = False) -> str:
    """The reason why another user can replace `path`: a folder above it, or a link on the way. Empty when none can.

    With `needed` also a folder above it that is not there: who may add to a folder with the sticky bit, such as /tmp, could remove a link
    for this look and make it again.
    """
    return _look(path, needed=needed, end=False)[0]


def changeable(path: Path, *, needed: bool = False) -> str:
    """The reason why another user can change a file, or the entries of a folder, or replace it. Empty when none can, and for one that is
    not there and not `needed`."""
    return _look(path, needed=needed, end=True)[0]


def input_fault(path: Path) -> str:
    """As `changeable`, for what is used as it is: when it is not there, another user may make it."""
    return changeable(path, needed=True)


def _look(path: Path, *, needed: bool, end: bool) -> tuple[str, os.stat_result | None]:
    """The reason as above, of the end as well if `end`, and the status of the end: both are of one look, between two of which another
    user may exchange what is there."""
    for step, status, last in _way(path):
        if status is None:
            return (f"{step} is not there" if needed and (end or not last) else ""), None
        fault = "" if last and not end else _step_fault(step, status, end=last)
        if fault or last:
            return fault, status if last else None
    return "", None


def _step_fault(step: Path, status: os.stat_result, *, end: bool) -> str:
    # the folders above are the system's, whose users a namespace does not know
    if status.st_uid not in _trusted_users() | _unknown_users():
        return f"{step} belongs to user {status.st_uid}, who can replace it"
    if end and (fault := _owner_fault(status)):
        return f"{step} {fault}"
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    # in such a folder others cannot replace what is not theirs, but they can add to it
    return "" if sticky and not end else _mode_fault(step, status)


def _mode_fault(step: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return ""
    if status.st_mode & 0o002 or (
        status.st_mode & 0o020
        # with an ACL these bits are the most that its users and groups may do
        and (not _is_private(status.st_gid, os.geteuid()) or acl_grants_write(step, ACCESS_ACL))
    ):
        return f"{step} has mode {stat.S_IMODE(status.st_mode):o}: others can replace what is in it"
    return ""


def is_own_file(path: Path) -> bool:
    """Whether there is a file that no other user can change or replace."""
    return path.is_file() and not input_fault(path)


def is_own_tree(folder: Path) -> bool:
    """Whether no other user owns or can write a file or folder of a tree. The folders above it are not looked at."""
    try:
        found, left = [folder.stat(follow_symlinks=False)], [folder]
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    found.append(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
    except OSError:
        return False
    # links have no mode of their own
    return not any(
        _owner_fault(one) or (one.st_mode & 0o022 and not stat.S_ISLNK(one.st_mode)) for one in found
    )


def acl_grants_write(path: Path, attribute: str) -> bool:
    """Whether a POSIX ACL of the folder, ACCESS_ACL or DEFAULT_ACL, lets others write, whatever its mask is; also when it cannot be
    read."""
    try:
        acl = os.getxattr(path, attribute)
    except OSError as error:
        return error.errno not in {errno.ENODATA, errno.ENOTSUP}
    entries = _ACL_ENTRY.iter_unpack(acl[_ACL_ENTRIES_AT:])
    return any(tag in _OTHERS[attribute] and rights & _MAY_WRITE for tag, rights, _ in entries)


def module_path_fault() -> str:
    """The reason why another user can put a module, or bytecode of one, where this process finds it. Empty when none can."""
    folders = [*sys.path, *([sys.pycache_prefix] if sys.pycache_prefix else [])]
    return next(filter(None, map(_addable, map(Path, folders))), "")


def _addable(folder: Path) -> str:
    """The reason why another user can put a module into a folder, or make it. One look at each step: between two of them the folder's owner
    could remove it."""
    seen: dict[Path, os.stat_result] = {}
    for step, status, last in _way(folder):
        if status is None:
            return _mode_fault(step.parent, seen[step.parent])
        # others can add to a folder with the sticky bit, such as /tmp
        if fault := _step_fault(step, status, end=False) or (_mode_fault(step, status) if last else ""):
            return fault
        seen[step] = status
    return ""


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result | None, bool]]:
    """Everything that is read to find the end of a path, with its status, and whether it is the end: folders above it, and those of every
    link, once for each time that it is read: what is found is what was looked at. Nothing follows what is not there (None), or the 40th
    link."""
    step, links = Path("/"), 0
    left = [*path.absolute().parts[1:]][::-1]
    yield step, step.lstat(), not left
    while left:
        name = left.pop()
        if name == "..":
            step = step.parent
            if not left:
                yield step, step.lstat(), True
            continue
        try:
            status = (step / name).lstat()
        except OSError:
            yield step / name, None, not left
            return
        link = stat.S_ISLNK(status.st_mode)
        yield step / name, status, not left and not link
        if not link:
            step /= name
            continue
        try:
            target = (step / name).readlink()
        except OSError:  # exchanged meanwhile
            yield step / name, None, False
            return
        if (links := links + 1) > _LINKS:
            return
        step = Path("/") if target.is_absolute() else step
        left += [part for part in target.parts if part != "/"][::-1]
        if not left:  # / or .
            yield step, step.lstat(), True


def _trusted_users() -> frozenset[int]:
    """This user and root; in a user namespace not a user whose number is that of all others."""
    return frozenset({0, os.geteuid()}) - _unknown_users()


@cache
def _unknown_users() -> frozenset[int]:
    """The number that a user namespace shows for the users that it does not know; empty where all are known."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _ALL_USERS:
            return frozenset()
        return frozenset({int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))})
    except OSError:
        return frozenset()


@cache
def _is_private(group: int, user: int) -> bool:
    """True for root's group, and for one that has the user's name, while no other account is in it: distributions give every user one.

    Accounts are those that the system lists; a directory service may list none of its own.
    """
    try:
        found, owner = grp.getgrgid(group), pwd.getpwuid(0 if group == 0 else user)
    except KeyError:
        return False
    own = group == 0 or (found.gr_name == owner.pw_name and owner.pw_gid == group)
    return own and {*found.gr_mem, *_accounts_of(group)} <= {owner.pw_name}


def _accounts_of(group: int) -> set[str]:
    """Accounts whose primary group it is, but those that are other names of root."""
    return {one.pw_name for one in pwd.getpwall() if one.pw_gid == group and one.pw_uid != 0}


def check_cache_name(folder: Path) -> None:
    """Raises CacheError for a path with a character that build tools interpret."""
    odd = [one for one in str(folder) if one in _REFUSED or not one.isprintable()]
    if odd:
        raise CacheError(
            f"cache folder {str(folder)!r} has {odd[0]!r} in its path",
            cause="CMake, a shell or a list of folders interprets this character",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
