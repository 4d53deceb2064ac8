"""Lists and prunes rootfs images in the cache."""

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.sandbox.rootfs.cache_files import CachePaths, storage_errors
from aotforge.sandbox.rootfs.definitions import (
    Lock,
    LockedFile,
    RootfsImage,
    RootfsSpec,
    find_rootfs,
    read_lock,
    rootfs_definitions,
)
from aotforge.sandbox.rootfs.image import image_id, image_tag
from aotforge.sandbox.rootfs.rootfs_cache import is_verified, rootfs_image

_DAY = 86400
_OWN_NAME = re.compile(r"\.?[0-9a-f]{64}(\.|$)")
"""A SHA-256, also of what was staged, or is being removed."""


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """A rootfs of the checkout: its lock, its forms in the cache, and the number of its stored files."""

    spec: RootfsSpec
    lock: Lock
    image: RootfsImage
    built: bool
    tree: Path | None
    stored: int


def entries(checkout: Path, cache: Path) -> list[CacheEntry]:
    """Every rootfs of the checkout. Raises ManifestError, ContainerError."""
    return [
        _entry(find_rootfs(checkout, name), CachePaths(cache=cache)) for name in rootfs_definitions(checkout)
    ]


def _entry(spec: RootfsSpec, paths: CachePaths) -> CacheEntry:
    lock, store = read_lock(spec.lock_file), paths.store
    tree = paths.tree(lock.digest)
    return CacheEntry(
        spec=spec,
        lock=lock,
        image=rootfs_image(spec, lock, paths),
        built=is_verified(paths, lock.digest),
        tree=tree if tree.is_dir() else None,
        stored=sum(store.has(digest) for digest in _digests(lock)),
    )


def _digests(lock: Lock) -> set[str]:
    return {entry.sha256 for entry in lock.files}


def fields(entry: CacheEntry) -> dict[str, Any]:
    """One rootfs as JSON."""
    lock = entry.lock
    return {
        "name": entry.image.name,
        "digest": lock.digest,
        "size": lock.size,
        "made": entry.built,
        "tar": str(entry.image.tar) if entry.built else None,
        "tree": str(entry.tree) if entry.tree else None,
        "image": {"tag": image_tag(entry.image), "id": image_id(entry.image) if entry.image.value else None},
        "source": entry.spec.source,
        "python": entry.image.python,
        "packages": [_package(one) for one in (*lock.packages, *lock.parts)],
        "wheels": [_package(one) for one in lock.wheels],
        "stored_files": entry.stored,
        "locked_files": len(_digests(lock)),
        "locked_bytes": sum(one.size for one in lock.files),
    }


def _package(entry: LockedFile) -> dict[str, Any]:
    return entry.model_dump(include={"name", "version", "sha256", "size"})


def lines(found: list[CacheEntry]) -> list[str]:
    """All rootfs images as a table."""
    rows = [("rootfs", "digest", "size", "in the cache", "packages", "fetched")]
    for entry in found:
        lock, forms = entry.lock, [name for name, has in (("tar", entry.built), ("tree", entry.tree)) if has]
        wheels = f" + {len(lock.wheels)} wheels" if lock.wheels else ""
        packages = f"{len(lock.packages) + len(lock.parts)}{wheels}"
        fetched, size = f"{entry.stored} of {len(_digests(lock))}", f"{lock.size / 1e6:.0f} MB"
        cached = ", ".join(forms) or "not built"
        rows.append((entry.image.name, lock.digest[:16], size, cached, packages, fetched))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def unreferenced(checkout: Path, cache: Path) -> list[tuple[Path, int]]:
    """Files and folders that no lock of the checkout references, with their size in bytes; recently staged files are not listed, and
    neither are those of other names than this program gives: a folder that is taken for a cache may have others.
    Raises ManifestError, ContainerError."""
    paths = CachePaths(cache=cache)
    kept = set()
    for entry in entries(checkout, cache):
        digest = entry.lock.digest
        kept |= {paths.tar(digest), paths.record(digest), paths.tree(digest)}
        kept |= {paths.store.path(file) for file in _digests(entry.lock)}
        if entry.image.value:
            kept.add(paths.archive(image_id(entry.image).removeprefix("sha256:")))
    folders = {paths.store.folder, *(make("x").parent for make in (paths.tar, paths.tree, paths.archive))}
    found = [
        path
        for folder in sorted(folders)
        for path in sorted(folder.glob("*"))
        if path not in kept and _OWN_NAME.match(path.name)
    ]
    return [(path, _size(path)) for path in found if not _is_being_staged(path)]


def _is_being_staged(path: Path) -> bool:
    """A process may still write a hidden file, for a day at most. A path that disappeared was staged too."""
    try:
        return path.name.startswith(".") and time.time() - path.lstat().st_mtime < _DAY
    except FileNotFoundError:
        return True


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(below.lstat().st_size for below in path.rglob("*") if below.is_symlink() or below.is_file())


def remove(path: Path) -> None:
    """Removes one unreferenced file or folder; a folder is renamed first, so that no process finds a part of it. Raises ContainerError."""
    with storage_errors(path):
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f".{path.name}.removed")
            path.rename(aside)
            shutil.rmtree(aside)
        else:
            path.unlink(missing_ok=True)
