"""Rootfs images in the cache: found, or assembled from their locks, always with the locked digest."""

import json
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.sandbox.rootfs.assemble import assemble
from aotforge.sandbox.rootfs.cache_files import CachePaths, create_once, staged_file, storage_errors
from aotforge.sandbox.rootfs.definitions import Lock, RootfsImage, RootfsSpec, find_rootfs, read_lock
from aotforge.sandbox.rootfs.fetch import SOURCES, fetch_locked, stage_reporter
from aotforge.sandbox.rootfs.members import first_difference
from aotforge.sandbox.rootfs.pip_wheels import pinned_wheels


def ensure_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
    sources: Sequence[str] = (),
) -> RootfsImage:
    """The rootfs `name`: from the cache, else assembled from its lock.

    Missing packages and wheels come from `sources` (folders, URLs), AOTFORGE_CONTAINER_SOURCES or mirrors, in this order.

    A rootfs in the cache is recognised by size, mtime and inode of its file, which only a writer of the cache could keep while changing
    bytes; it was hashed when it was built. Raises ContainerError, UnknownNameError, ManifestError.
    """
    spec = find_rootfs(checkout, name)
    lock = read_lock(spec.lock_file)
    check_lock(spec, lock, checkout)
    paths = CachePaths(cache=cache)
    with storage_errors(paths.base):
        create_once(
            paths.lock(lock.digest),
            lambda: is_verified(paths, lock.digest),
            lambda: _build(spec, lock, paths, (*sources, *environment.get(SOURCES, "").split()), observer),
            on_wait=lambda: observer.stage(f"{name}: another process builds it; waiting"),
        )
        create_once(
            paths.lock("image-value"),
            paths.image_value.is_file,
            lambda: _make_image_value(paths),
        )
    return rootfs_image(spec, lock, paths)


def check_lock(spec: RootfsSpec, lock: Lock, checkout: Path) -> None:
    """Raises ContainerError when the definition or the pinned wheels changed after the lock was written."""
    hint = f"write the lock again: ./dev containers.lock --name {spec.name}"
    if lock.definition != spec.definition.digest():
        raise ContainerError(
            f"{spec.lock_file} does not match its definition",
            cause="the definition was changed after the lock was written",
            hint=hint,
        )
    wheels = spec.definition.wheels
    locked = {wheel.name: wheel for wheel in lock.wheels}
    for name, pin in (pinned_wheels(wheels, checkout) if wheels else {}).items():
        if name not in locked or locked[name].sha256 not in pin.hashes:
            has = locked[name].version if name in locked else "none"
            raise ContainerError(
                f"{spec.lock_file} has {name} {has}, {wheels.requirements if wheels else ''} pins {pin.version}",
                cause="the requirements were changed after the lock was written",
                hint=hint,
            )


def rootfs_image(spec: RootfsSpec, lock: Lock, paths: CachePaths) -> RootfsImage:
    """The rootfs that a lock describes, built or not."""
    return RootfsImage(
        name=spec.name,
        digest=lock.digest,
        tar=paths.tar(lock.digest),
        python=spec.definition.python,
        environment=tuple(sorted(spec.definition.environment.items())),
        value=paths.image_value.read_text("ascii") if paths.image_value.is_file() else "",
    )


def _make_image_value(paths: CachePaths) -> None:
    write_atomic(paths.image_value, secrets.token_hex(16).encode("ascii"))


def _build(
    spec: RootfsSpec, lock: Lock, paths: CachePaths, sources: Sequence[str], observer: Observer
) -> None:
    tar, store = paths.tar(lock.digest), paths.store
    # a restored cache has the same bytes, other times
    if not tar.is_file() or sha256_file(tar) != lock.digest:
        with staged_file(tar) as path:
            fetch_locked(spec, lock, store, sources=sources, observer=observer)
            on_file = stage_reporter(spec.name, "unpacking", observer)
            built = assemble(spec.definition, lock, files=store.checked, tar=path, on_file=on_file)
            if built.digest != lock.digest:
                raise _other_digest(spec, lock, built.digest, built.members)
        observer.stage(f"{spec.name}: ready")
    record_verified(paths, lock.digest)


def _other_digest(spec: RootfsSpec, lock: Lock, digest: str, members: str) -> ContainerError:
    try:
        locked = spec.members_file.read_text(encoding="utf-8")
        difference = first_difference(locked, members) or "order or headers of the tar"
    except OSError:
        difference = f"{spec.members_file.name} is missing, so the first different member is unknown"
    return ContainerError(
        f"{spec.name} was assembled to {digest}, locked is {lock.digest}: {difference}",
        cause="aotforge/sandbox/rootfs changed how it assembles the same files, or the lock was edited",
        hint=f"if the change is intended: ./dev containers.lock --name {spec.name}, and review {spec.members_file.name}",
    )


def export_store(checkout: Path, name: str, *, cache: Path, folder: Path) -> int:
    """Copies every locked file of a rootfs to `folder`, by SHA-256, to be used as a source; their number. Raises ContainerError."""
    lock = read_lock(find_rootfs(checkout, name).lock_file)
    with storage_errors(folder):
        return CachePaths(cache=cache).store.export((entry.sha256 for entry in lock.files), folder)


def unpack_rootfs(image: RootfsImage, *, cache: Path) -> Path:
    """The rootfs as a folder, unpacked once; its name is the digest. Never write into it. Raises ContainerError."""
    paths = CachePaths(cache=cache)
    tree = paths.tree(image.digest)
    with storage_errors(tree):
        create_once(paths.lock(f"{image.digest}.tree"), tree.is_dir, lambda: _unpack(image.tar, tree))
    return tree


def _unpack(tar: Path, tree: Path) -> None:
    make_folders(tree.parent)
    for left in tree.parent.glob(f".{tree.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{tree.name}.", dir=tree.parent))
    try:
        with tarfile.open(tar) as archive:
            archive.extraction_filter = (
                _unchanged  # an attribute: Python before 3.11.4 has no argument for it
            )
            for member in archive.getmembers():  # they belong to this user, who cannot give files away
                member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
                if member.isdir():  # /tmp: other users of this machine must not write there
                    member.mode &= ~0o1022
            archive.extractall(folder)
        folder.chmod(0o755)
        os.sync()  # file systems may write the new name before the bytes, and they are not compared again
        folder.rename(tree)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _unchanged(member: tarfile.TarInfo, _path: str) -> tarfile.TarInfo:
    """The tar's digest is known, so nothing is checked."""
    return member


def _marks(tar: Path) -> dict[str, int]:
    found = tar.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def is_verified(paths: CachePaths, digest: str) -> bool:
    """The rootfs' file is the one that was hashed."""
    tar = paths.tar(digest)
    try:
        return bool(json.loads(paths.record(digest).read_text()) == _marks(tar))
    except (OSError, ValueError):
        return False


def record_verified(paths: CachePaths, digest: str) -> None:
    """Records that the rootfs' file has its digest."""
    write_atomic(paths.record(digest), json.dumps(_marks(paths.tar(digest))).encode())
