"""Contents of a cache folder by kind, and the collection of what was not used for longest."""

import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_errors
from aotforge.errors import CacheError

IN_USE_SECONDS = 86_400.0
"""Objects that were used in the last day are never removed: a running build may need them."""

LIBRARIES, STAMP = "runtime", "build.json"
"""Folder of the libraries' builds; the file in each that has the time of the last use."""

COMPILED, COMPILED_STAMP = "check-2", "result.json"
"""The same of the programs that checks compile."""

_FILES = re.compile(r"(images|verdicts)-[0-9]+")
_KEY = re.compile(r"[0-9a-f]{64}")


def check_cache_name(folder: Path) -> None:
    """Raises CacheError for a path with a character that CMake, shells or lists of folders interpret."""
    odd = [character for character in str(folder) if character in ';"$\\:' or not character.isprintable()]
    if odd:
        raise CacheError(
            f"cache folder {str(folder)!r} has {odd[0]!r} in its path",
            cause="CMake, a shell or a list of folders interprets this character",
            hint="choose another one with --cache or AOTFORGE_CACHE",
        )


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object of the cache: a file, or the folder of a library. `used`: seconds since 1970."""

    kind: str
    path: Path
    size: int
    used: float = 0.0


@dataclass(frozen=True, kw_only=True)
class KindUsage:
    """Objects of a kind; those that are not collected (`collected` is False) have no times."""

    kind: str
    objects: int
    size: int
    collected: bool
    oldest: float
    newest: float


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Removed objects and their bytes, and the bytes of those that are left."""

    removed: int
    freed: int
    left: int

    def fields(self) -> dict[str, int]:
        """JSON values."""
        return vars(self)

    def lines(self) -> list[str]:
        """One line of text."""
        return [
            f"{self.removed} objects removed, {self.freed / 1e6:.1f} MB; {self.left / 1e6:.1f} MB are left"
        ]


def _stored_objects(cache: Path) -> Iterator[StoredObject]:
    """Images, verdicts, libraries and programs of checks; of the first two older formats too."""
    for folder in sorted(cache.iterdir()) if cache.is_dir() else ():
        if _FILES.fullmatch(folder.name):
            for path in sorted(folder.glob("??/*")):
                with suppress(FileNotFoundError):  # another command removed it
                    status = path.lstat()
                    if _KEY.fullmatch(path.name) and stat.S_ISREG(status.st_mode):
                        size, used = status.st_size, status.st_mtime
                        yield StoredObject(kind=folder.name, path=path, size=size, used=used)
    for kind, stamp in ((LIBRARIES, STAMP), (COMPILED, COMPILED_STAMP)):
        for folder in sorted((cache / kind).iterdir()) if (cache / kind).is_dir() else ():
            if _KEY.fullmatch(folder.name):
                with suppress(FileNotFoundError):
                    used = (folder / stamp).stat().st_mtime
                    yield StoredObject(kind=kind, path=folder, size=_tree_size(folder), used=used)


def usage(cache: Path) -> tuple[KindUsage, ...]:
    """Every kind and every other folder of the cache, the largest first. Raises OutputError."""
    kinds: dict[str, list[StoredObject]] = {}
    with output_errors(cache):
        for stored in _stored_objects(cache):
            kinds.setdefault(stored.kind, []).append(stored)
        for folder in cache.iterdir() if cache.is_dir() else ():
            if folder.name not in kinds and folder.is_dir() and not folder.is_symlink():
                kinds[folder.name] = [
                    StoredObject(kind=folder.name, path=path, size=_tree_size(path))
                    for path in folder.iterdir()
                ]
    usages = [
        KindUsage(
            kind=kind,
            objects=len(objects),
            size=sum(stored.size for stored in objects),
            collected=any(stored.used for stored in objects),
            oldest=min((stored.used for stored in objects), default=0.0),
            newest=max((stored.used for stored in objects), default=0.0),
        )
        for kind, objects in kinds.items()
    ]
    return tuple(sorted(usages, key=lambda kind_usage: (-kind_usage.size, kind_usage.kind)))


def evict(cache: Path, limit: int) -> Collection:
    """Removes what was not used for longest until at most `limit` bytes are left. Raises OutputError."""
    removed = freed = 0
    newest = time.time() - IN_USE_SECONDS
    with output_errors(cache):
        objects = sorted(_stored_objects(cache), key=lambda stored: stored.used)
        left = sum(stored.size for stored in objects)
        for stored in objects:
            if left <= limit or stored.used > newest:
                break
            _remove(stored.path)
            left, removed, freed = left - stored.size, removed + 1, freed + stored.size
    return Collection(removed=removed, freed=freed, left=left)


def _tree_size(folder: Path) -> int:
    total = 0
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            status = path.lstat()
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _remove(path: Path) -> None:
    """Removes a file, or a folder in one step for those who look for it."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = path.with_name(f".{path.name}.removed")
    with suppress(FileNotFoundError):
        shutil.rmtree(aside)
    with suppress(FileNotFoundError):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
