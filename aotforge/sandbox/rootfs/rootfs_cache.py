"""From a root's name to the root: out of the cache, else assembled from its lock, and never another one than the lock names."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.manifest_reader import load
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError, UnknownNameError, suggest
from aotforge.sandbox.rootfs.definitions import Containers, Definition, Lock, Source, read_lock
from aotforge.sandbox.rootfs.members import file_digest, first_difference
from aotforge.sandbox.rootfs.rootfs import CachePaths, RootfsImage

SOURCES = "AOTFORGE_CONTAINER_SOURCES"
"""Variable with folders and URLs, joined by blanks, that are asked for packages and wheels before any mirror."""


@dataclass(frozen=True, kw_only=True)
class RootfsSpec:
    """A root as the checkout names it: where its definition and lock are, and what they say."""

    name: str
    source: Source
    definition: Definition | None
    lock_file: Path

    @property
    def members_file(self) -> Path:
        """The committed member list beside the lock."""
        return self.lock_file.with_name(self.lock_file.name.replace(".lock.json", ".members"))


def rootfs_definitions(checkout: Path) -> Mapping[str, Source]:
    """Every root of the checkout. Raises ManifestError."""
    return load(checkout / "manifests" / "containers.yaml", Containers).roots


def find_rootfs(checkout: Path, name: str) -> RootfsSpec:
    """Raises UnknownNameError, ManifestError."""
    roots = rootfs_definitions(checkout)
    if name not in roots:
        raise UnknownNameError(f"there is no container root {name!r}", cause=suggest(name, roots))
    source = roots[name]
    if source.image:
        lock = checkout / "docker" / "images" / f"{name}.lock.json"
        return RootfsSpec(name=name, source=source, definition=None, lock_file=lock)
    file = checkout / source.definition
    return RootfsSpec(
        name=name, source=source, definition=load(file, Definition), lock_file=file.with_suffix(".lock.json")
    )


def ensure_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
    sources: Sequence[str] = (),
) -> RootfsImage:
    """The root `name`: from the cache, else assembled from its lock.

    Missing packages and wheels are asked of `sources` (folders, URLs), then of AOTFORGE_CONTAINER_SOURCES, then of mirrors.

    A root in the cache is trusted by size, time and inode of its file, which only a writer of the cache could keep while changing
    bytes; it was hashed when it was made. Raises ContainerError, UnknownNameError, ManifestError.
    """
    from aotforge.sandbox.rootfs.lock_check import check_lock  # noqa: PLC0415 - most calls find the root in the cache

    named = find_rootfs(checkout, name)
    lock = read_lock(named.lock_file)
    check_lock(named, lock, checkout)
    places = CachePaths(cache=cache.absolute())
    with storage_errors(places.base):
        if not is_verified(places, lock.digest):
            with cache_lock(
                places, lock.digest, lambda: observer.stage(f"{name}: another process makes it; waiting")
            ):
                if not is_verified(places, lock.digest):
                    _make(named, lock, places, (*sources, *environment.get(SOURCES, "").split()), observer)
    return rootfs_image(named, lock, places)


def rootfs_image(named: RootfsSpec, lock: Lock, places: CachePaths) -> RootfsImage:
    """The root that a lock names, whether or not it is made."""
    settings = named.definition.environment if named.definition else named.source.environment
    return RootfsImage(
        name=named.name,
        digest=lock.digest,
        tar=places.tar(lock.digest),
        python=named.definition.python if named.definition else named.source.python,
        environment=tuple(sorted(settings.items())),
    )


def _make(
    named: RootfsSpec, lock: Lock, places: CachePaths, sources: Sequence[str], observer: Observer
) -> None:
    from aotforge.sandbox.rootfs.build_rootfs import build_rootfs  # noqa: PLC0415 - most calls find the root in the cache

    tar = places.tar(lock.digest)
    if tar.is_file() and file_digest(tar) == lock.digest:
        record_verified(places, lock.digest)  # a copied or restored cache: same bytes, other times
        return
    with staged_file(tar) as path:
        made = build_rootfs(named, lock, places, path, sources, observer)
        if made.digest != lock.digest:
            raise _another(named, lock, made.digest, made.members)
    record_verified(places, lock.digest)
    observer.stage(f"{named.name}: ready")


def _another(named: RootfsSpec, lock: Lock, digest: str, members: str) -> ContainerError:
    try:
        where = first_difference(named.members_file.read_text(encoding="utf-8"), members)
    except OSError:
        where = f"{named.members_file.name} is missing, so the first differing member is unknown"
    return ContainerError(
        f"{named.name} was assembled to {digest}, locked is {lock.digest}: {where or 'order or headers of the tar'}",
        cause="aotforge/sandbox/rootfs changed what it makes of the same files, or the lock was edited",
        hint=f"if the change is meant: invoke containers.lock --name {named.name}, and review {named.members_file.name}",
    )


def export_store(checkout: Path, name: str, *, cache: Path, folder: Path) -> int:
    """Copy every file that a root's lock names to `folder`, by SHA-256; how many. It serves as a source then. Raises ContainerError."""
    from aotforge.sandbox.rootfs.package_store import Store  # noqa: PLC0415

    lock = read_lock(find_rootfs(checkout, name).lock_file)
    with storage_errors(folder):
        wanted = (entry.sha256 for entry in lock.files)
        return Store(CachePaths(cache=cache.absolute()).store).export(wanted, folder)


def unpack_rootfs(root: RootfsImage, *, cache: Path) -> Path:
    """A folder with the root's tree, made once; its name is the digest. Read it, never write into it. Raises ContainerError."""
    places = CachePaths(cache=cache.absolute())
    tree = places.tree(root.digest)
    with storage_errors(tree):
        if tree.is_dir():
            return tree
        with cache_lock(places, f"{root.digest}.tree", lambda: None):
            if not tree.is_dir():
                _unpack(root.tar, tree)
    return tree


def _unpack(tar: Path, tree: Path) -> None:
    tree.parent.mkdir(parents=True, exist_ok=True)
    for left in tree.parent.glob(f".{tree.name}.*"):
        shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=f".{tree.name}.", dir=tree.parent))
    try:
        with tarfile.open(tar) as archive:
            archive.extractall(folder, filter=_as_is)
        folder.chmod(0o755)
        folder.rename(tree)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _as_is(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """The tar is our own and its digest is known. Owners become this user, as nobody else can be given files."""
    return member.replace(uid=os.getuid(), gid=os.getgid(), uname="", gname="", deep=False)


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` when the block ends well, read-only. Call it while holding the path's lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.staged-*"):
        left.unlink()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.staged-", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        Path(name).chmod(0o444)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def cache_lock(places: CachePaths, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds a lock that dies with this process; waits for another holder."""
    import fcntl  # noqa: PLC0415

    folder = places.base / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _marks(tar: Path) -> dict[str, int]:
    found = tar.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}


def is_verified(places: CachePaths, digest: str) -> bool:
    """Whether the root's file is the one that was hashed."""
    try:
        return bool(json.loads(places.record(digest).read_text()) == _marks(places.tar(digest)))
    except (OSError, ValueError):
        return False


def record_verified(places: CachePaths, digest: str) -> None:
    """Remember that the root's file was read whole and has its digest."""
    from aotforge.base.files import write_atomic  # noqa: PLC0415

    write_atomic(places.record(digest), json.dumps(_marks(places.tar(digest))).encode())


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """The system's errors as ContainerError."""
    try:
        yield
    except OSError as error:
        from aotforge.base.files import _CAUSES  # noqa: PLC0415

        raise ContainerError(
            f"cannot write {error.filename or path}: {error.strerror or error}",
            cause=_CAUSES.get(error.errno or 0, ""),
            hint="nothing half written stays; make room (invoke containers.prune) or name another cache (AOTFORGE_CACHE)",
        ) from error
