"""Rootfs images in the cache: made on demand, each in the one form that its runner needs.

An engine imports the tar and keeps the image; bubblewrap keeps the folder. The tar is never stored.
"""

import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from aotforge.base.files import errors_as, make_folders, scratch_folder, staged_folder, waiting_lock
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.formats.archive import unpack
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.definitions import lock_error, read_lock, read_spec, rootfs_names
from aotforge.run.rootfs.fetch import Downloads
from aotforge.run.rootfs.lock import pinned_wheels
from aotforge.run.step import RootFS

_DAY = 86400


def find_rootfs(
    checkout: Path, name: str, *, cache: Path, environment: Mapping[str, str], observer: Observer
) -> RootFS:
    """The rootfs `name`, made when a runner needs it. Raises ContainerError, UnknownNameError."""
    spec, folder, downloads = read_spec(checkout, name), _folder(cache), Downloads(cache)
    lock, wheels = read_lock(spec), spec.definition.wheels
    locked = {entry.name: entry.sha256 for entry in lock.wheels}
    for pinned, (version, hashes) in pinned_wheels(wheels, checkout).items() if wheels else ():
        if locked.get(pinned) not in hashes:
            raise lock_error(spec, f"has another {pinned} than the pinned {version}")

    @contextmanager
    def packed() -> Iterator[Path]:
        with _storage_errors(folder), scratch_folder(folder, ".rootfs-") as scratch:
            with waiting_lock(downloads.folder):  # of several builds, one downloads
                downloads.fetch(spec, lock, environment=environment, observer=observer)
            observer.stage(f"{name}: unpacking {len(lock.files)} packages")
            tar = scratch / "root.tar"
            digest = assemble(spec.definition, lock, files=downloads.checked, tar=tar)
            if digest != lock.digest:
                raise lock_error(spec, f"has the digest {lock.digest}, and its files give {digest}")
            yield tar

    return RootFS(
        name=name,
        identity=lock.digest,
        python=spec.definition.python,
        environment=tuple(sorted(spec.definition.environment.items())),
        packed=packed,
        unpacked=lambda: _unpacked(folder / "trees" / lock.digest, packed),
    )


def _folder(cache: Path) -> Path:
    return cache.absolute() / "containers"


def _storage_errors(folder: Path) -> AbstractContextManager[None]:
    hint = "free some space or choose another cache (--cache); then build again"
    return errors_as(ContainerError, folder, hint=hint)


def _unpacked(tree: Path, packed: Callable[[], AbstractContextManager[Path]]) -> Path:
    """The rootfs as a folder, unpacked once; its name is the digest."""
    if not tree.is_dir():
        with _storage_errors(tree), waiting_lock(tree):
            if not tree.is_dir():
                make_folders(tree.parent)
                with packed() as tar, staged_folder(tree) as staged, tarfile.open(tar) as archive:
                    unpack(archive, staged, filter="tar")
    return tree


def prune_rootfs(checkout: Path, cache: Path) -> list[Path]:
    """Removes downloads and trees of a day ago that no lock of the checkout names; returns their paths."""
    folder, named = _folder(cache), set[str]()
    for name in rootfs_names(checkout):
        lock = read_lock(read_spec(checkout, name))
        named |= {lock.digest, *(entry.sha256 for entry in lock.files)}
    others = [path for path in sorted(folder.glob("*/[!.]*")) if path.name not in named]
    old = [path for path in others if time.time() - path.lstat().st_mtime > _DAY]
    with _storage_errors(folder):
        for path in old:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return old
