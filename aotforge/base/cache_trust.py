"""Check of a cache folder's name; `vgpu.cache` checks its owner and its mode."""

from pathlib import Path

from aotforge.errors import CacheError

_REFUSED = ';"$\\:'
"""Characters that CMake, shells and lists of folders such as LD_LIBRARY_PATH interpret, besides control
characters."""


def check_cache_name(folder: Path) -> None:
    """Raises CacheError for a path with a character that build tools interpret."""
    odd = [one for one in str(folder) if one in _REFUSED or not one.isprintable()]
    if odd:
        raise CacheError(
            f"cache folder {str(folder)!r} has {odd[0]!r} in its path",
            cause="CMake, a shell or a list of folders interprets this character",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )
