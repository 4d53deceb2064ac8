"""Checks of a cache folder, whose content is executed: its owner, its mode and its name."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from aotforge.errors import CacheError

_REFUSED = ';"$\\:'
"""Characters that CMake, shells and lists of folders such as LD_LIBRARY_PATH interpret, besides control characters."""

_warned: set[Path] = set()
"""Folders that this process has reported."""


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


def check_cache(folder: Path, warn: Callable[[str], object] | None = None) -> None:
    """Reports a fault of `folder` once, by `warn` or on standard error. Raises CacheError for it where AOTFORGE_STRICT is 1."""
    if not (fault := cache_fault(folder)):
        return
    what = f"cache folder {folder} {fault}"
    if os.environ.get("AOTFORGE_STRICT") == "1":
        change = "chmod o-w" if fault.startswith("has mode") else f"chown -R {os.geteuid()}"
        raise CacheError(
            what,
            cause="programs in a cache are executed, and AOTFORGE_STRICT=1 accepts those of this user and root only",
            hint=f"{change} {quote(str(folder))}, or choose another one with --cache or AOTFORGE_CACHE",
        )
    if folder not in _warned:
        _warned.add(folder)
        (warn or _to_stderr)(f"warning: {what}")


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def check_cache_name(folder: Path) -> None:
    """Raises CacheError for a path with a character that build tools interpret."""
    odd = [one for one in str(folder) if one in _REFUSED or not one.isprintable()]
    if odd:
        raise CacheError(
            f"cache folder {str(folder)!r} has {odd[0]!r} in its path",
            cause="CMake, a shell or a list of folders interprets this character",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
