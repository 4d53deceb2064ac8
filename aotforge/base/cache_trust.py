"""Checks of a cache folder, whose content is executed: only this user and root may write it."""

import os
import stat
from pathlib import Path

from aotforge.errors import CacheError

_REFUSED = ';"$\\'
"""Characters that CMake and shells interpret, besides control characters."""


def check_cache(folder: Path) -> None:
    """Raises CacheError when `folder` exists and belongs to another user, or when others can write to it."""
    try:
        status = folder.stat()
    except OSError:
        return  # it is made later, or its use reports the reason
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in {0, os.geteuid()}:
        raise CacheError(
            f"cache folder {folder} belongs to user {status.st_uid}, not to user {os.geteuid()}",
            cause="its owner could replace native code, which this process would execute",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
    if mode & 0o022:
        raise CacheError(
            f"cache folder {folder} has mode {mode:o}: other users can write to it",
            cause="they could replace native code, which this process would execute",
            hint=f"remove it and build again, or, if only users that you trust could write, chmod -R go-w {folder}",
        )


def check_cache_name(folder: Path) -> None:
    """Raises CacheError for a path with a character that build tools interpret."""
    odd = [one for one in str(folder) if one in _REFUSED or not one.isprintable()]
    if odd:
        raise CacheError(
            f"cache folder {str(folder)!r} has {odd[0]!r} in its path",
            cause="CMake or a shell interprets this character, so nothing can be built there",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
