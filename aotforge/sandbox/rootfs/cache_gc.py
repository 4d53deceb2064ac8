"""What the cache holds of the containers room: shown, and cleared of what no lock names any more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.sandbox.rootfs.definitions import Lock, LockedFile, read_lock
from aotforge.sandbox.rootfs.docker_image import image_id, image_tag
from aotforge.sandbox.rootfs.package_store import Store
from aotforge.sandbox.rootfs.rootfs import CachePaths, RootfsImage
from aotforge.sandbox.rootfs.rootfs_cache import (
    RootfsSpec,
    find_rootfs,
    is_verified,
    rootfs_definitions,
    rootfs_image,
    storage_errors,
)

_DAY = 86400


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A root of the checkout: its lock, and which of its forms are in the cache."""

    named: RootfsSpec
    lock: Lock
    root: RootfsImage
    made: bool
    tree: Path | None
    stored: int


def entries(checkout: Path, cache: Path) -> list[Entry]:
    """Every root of the checkout. Raises ManifestError, ContainerError."""
    places = CachePaths(cache=cache.absolute())
    store = Store(places.store)
    found = []
    for name in rootfs_definitions(checkout):
        named = find_rootfs(checkout, name)
        lock = read_lock(named.lock_file)
        tree = places.tree(lock.digest)
        found.append(
            Entry(
                named=named,
                lock=lock,
                root=rootfs_image(named, lock, places),
                made=is_verified(places, lock.digest),
                tree=tree if tree.is_dir() else None,
                stored=sum(store.has(digest) for digest in locked_files(lock)),
            )
        )
    return found


def locked_files(lock: Lock) -> set[str]:
    """SHA-256 of every file that a lock names."""
    return {entry.sha256 for entry in lock.files}


def fields(entry: Entry) -> dict[str, Any]:
    """One root for programs."""
    lock = entry.lock
    return {
        "name": entry.root.name,
        "digest": lock.digest,
        "size": lock.size,
        "made": entry.made,
        "tar": str(entry.root.tar) if entry.made else None,
        "tree": str(entry.tree) if entry.tree else None,
        "image": {"tag": image_tag(entry.root), "id": image_id(entry.root)},
        "source": entry.named.source.image or entry.named.source.definition,
        "python": entry.root.python,
        "packages": [_package(one) for one in (*lock.packages, *lock.parts)],
        "wheels": [_package(one) for one in lock.wheels],
        "stored_files": entry.stored,
        "locked_files": len(locked_files(lock)),
        "locked_bytes": sum(one.size for one in lock.files),
    }


def _package(entry: LockedFile) -> Mapping[str, Any]:
    return {name: getattr(entry, name) for name in ("name", "version", "sha256", "size")}


def lines(found: list[Entry]) -> list[str]:
    """All roots for people."""
    rows = [("root", "digest", "size", "in the cache", "packages", "fetched")]
    for entry in found:
        forms = [name for name, there in (("tar", entry.made), ("tree", entry.tree)) if there]
        named = len(entry.lock.packages) + len(entry.lock.parts)
        wheels = f" + {len(entry.lock.wheels)} wheels" if entry.lock.wheels else ""
        rows.append(
            (
                entry.root.name, entry.lock.digest[:16], f"{entry.lock.size / 1e6:.0f} MB", ", ".join(forms) or "not made",
                f"{named}{wheels}", f"{entry.stored} of {len(locked_files(entry.lock))}",
            )
        )  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def unreferenced(checkout: Path, cache: Path) -> list[tuple[Path, int]]:
    """What no lock of the checkout names, with its size in bytes; what may still be in the making stays. Raises ManifestError, ContainerError."""
    places = CachePaths(cache=cache.absolute())
    found = entries(checkout, cache)
    digests = {entry.lock.digest for entry in found}
    kept = {places.path(digest) for entry in found for digest in locked_files(entry.lock)}
    kept |= {
        rootfs
        for digest in digests
        for rootfs in (places.tar(digest), places.record(digest), places.tree(digest))
    }
    kept |= {places.archive(image_id(entry.root).removeprefix("sha256:")) for entry in found}
    folders = {places.store, places.tar("x").parent, places.tree("x").parent, places.archive("x").parent}
    return [
        (path, size_of(path))
        for folder in sorted(folders)
        for path in _below(folder)
        if path not in kept and not _young(path)
    ]


def _young(path: Path) -> bool:
    """Hidden names are staged by a process that may be alive; a day later it is not. What is gone meanwhile was."""
    try:
        return path.name.startswith(".") and time.time() - path.lstat().st_mtime < _DAY
    except FileNotFoundError:
        return True


def _below(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(folder.iterdir())


def size_of(path: Path) -> int:
    """Bytes of a file, or of everything below a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(below.lstat().st_size for below in path.rglob("*") if below.is_symlink() or below.is_file())


def remove(path: Path) -> None:
    """Take one idle thing away; a tree first leaves its rootfs, so that nobody finds half of one. Raises ContainerError."""
    with storage_errors(path):
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f".{path.name}.removed")
            path.rename(aside)
            shutil.rmtree(aside)
        else:
            path.unlink(missing_ok=True)
