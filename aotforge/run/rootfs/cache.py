"""Rootfs images in the cache: made on demand, each in the one form that its runner needs.

An engine imports the tar and keeps the image; bubblewrap keeps the folder. The tar is never stored.
"""

import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from aotforge.base.files import errors_as, make_folders, scratch_folder, staged_folder, waiting_lock
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.definitions import Lock, RootfsSpec, read_lock, read_spec, rootfs_names
from aotforge.run.rootfs.fetch import Downloads, fetch_locked
from aotforge.run.rootfs.lock import pinned_wheels
from aotforge.run.step import RootFS

_DAY = 86400


def find_rootfs(
    checkout: Path, name: str, *, cache: Path, environment: Mapping[str, str], observer: Observer
) -> RootFS:
    """The rootfs `name`. Its files are made when a runner asks for them, from `SOURCES`, mirrors and pip.

    Raises ContainerError, UnknownNameError, ManifestError; so do `packed` and `unpacked`.
    """
    spec = read_spec(checkout, name)
    lock = _current_lock(spec, checkout)

    def packed() -> AbstractContextManager[Path]:
        return _packed(spec, lock, cache=cache, environment=environment, observer=observer)

    return RootFS(
        name=name,
        identity=lock.digest,
        python=spec.definition.python,
        environment=tuple(sorted(spec.definition.environment.items())),
        packed=packed,
        unpacked=lambda: _unpacked(_tree(cache, lock), packed),
    )


def _current_lock(spec: RootfsSpec, checkout: Path) -> Lock:
    """The lock. Raises ContainerError when the requirements pin other wheels than it names."""
    lock, wheels = read_lock(spec), spec.definition.wheels
    locked = {entry.name: entry for entry in lock.wheels}
    for name, (version, hashes) in pinned_wheels(wheels, checkout).items() if wheels else ():
        if name not in locked or locked[name].sha256 not in hashes:
            has = locked[name].version if name in locked else "none"
            raise ContainerError(
                f"{spec.lock_file} has {name} {has}, {wheels.requirements if wheels else ''} pins {version}",
                cause="the requirements were changed after the lock was written",
                hint=f"write the lock again: ./dev containers.lock --name {spec.name}",
            )
    return lock


def _folder(cache: Path) -> Path:
    return cache.absolute() / "containers"


def _tree(cache: Path, lock: Lock) -> Path:
    return _folder(cache) / "trees" / lock.digest


def _storage_errors(folder: Path) -> AbstractContextManager[None]:
    hint = "free some space (./dev cache --prune) or choose another cache (AOTFORGE_CACHE); then build again"
    return errors_as(ContainerError, folder, hint=hint)


@contextmanager
def _packed(
    spec: RootfsSpec, lock: Lock, *, cache: Path, environment: Mapping[str, str], observer: Observer
) -> Iterator[Path]:
    """A tar with the locked SHA-256, removed at the end of the block."""
    folder, downloads = _folder(cache), Downloads(cache)
    with _storage_errors(folder), scratch_folder(folder, ".rootfs-") as scratch:
        with waiting_lock(downloads.folder):  # of several builds, one downloads
            fetch_locked(spec, lock, downloads, environment=environment, observer=observer)
        observer.stage(f"{spec.name}: unpacking {len(lock.files)} packages")
        tar = scratch / "root.tar"
        digest = assemble(spec.definition, lock, files=downloads.checked, tar=tar)
        if digest != lock.digest:
            raise ContainerError(
                f"{spec.name} was assembled to {digest}, locked is {lock.digest}",
                cause="aotforge/run/rootfs changed how it assembles the same files, or the lock was edited",
                hint=f"if the change is intended: ./dev containers.lock --keep --name {spec.name}",
            )
        yield tar


def _unpacked(tree: Path, packed: Any) -> Path:
    """The rootfs as a folder, unpacked once; its name is the digest."""
    if not tree.is_dir():
        with _storage_errors(tree), waiting_lock(tree):
            if not tree.is_dir():
                make_folders(tree.parent)
                with packed() as tar, staged_folder(tree) as staged, tarfile.open(tar) as archive:
                    archive.extractall(staged, filter="tar")
    return tree


def rootfs_rows(checkout: Path, cache: Path) -> list[dict[str, Any]]:
    """Each rootfs of the checkout as JSON. Raises ManifestError, ContainerError."""
    rows = []
    for name, source in rootfs_names(checkout).items():
        lock = read_lock(read_spec(checkout, name))
        tree, downloads = _tree(cache, lock), Downloads(cache)
        rows.append(
            {
                "name": name,
                "digest": lock.digest,
                "source": source,
                "tree": str(tree) if tree.is_dir() else None,
                "packages": [f"{entry.name} {entry.version}" for entry in lock.files],
                "downloaded": sum(downloads.path(entry.sha256).is_file() for entry in lock.files),
                "bytes": sum(entry.size for entry in lock.files),
            }
        )
    return rows


def prune_rootfs(checkout: Path, cache: Path, *, dry_run: bool) -> list[tuple[Path, int]]:
    """Removes downloads and trees that no lock of the checkout names, also of earlier versions.

    Returns paths and bytes. Raises ManifestError, ContainerError, OutputError.
    """
    folder, named = _folder(cache), set[str]()
    for name in rootfs_names(checkout):
        lock = read_lock(read_spec(checkout, name))
        named |= {lock.digest, *(entry.sha256 for entry in lock.files)}
    old = [
        path
        for path in sorted(folder.glob("*/*"))
        if path.name not in named and not path.name.startswith(".")
    ]
    removed = [(path, _size(path)) for path in old if time.time() - path.lstat().st_mtime > _DAY]
    with _storage_errors(folder):
        for path, _ in () if dry_run else removed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())
