"""`./dev containers.lock`: resolves a definition, and writes its lock and member list."""

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.assemble import assemble
from aotforge.sandbox.rootfs.cache_files import CachePaths, Store, file_lock, staged_file, storage_errors
from aotforge.sandbox.rootfs.definitions import Lock, LockedPackage, RootfsSpec, find_rootfs, read_lock
from aotforge.sandbox.rootfs.fetch import SOURCES, apt_settings, fetch_locked
from aotforge.sandbox.rootfs.pip_wheels import choose_wheels
from aotforge.sandbox.rootfs.resolve_packages import resolve
from aotforge.sandbox.rootfs.rootfs_cache import record_verified

_NONE = "0" * 64


@dataclass(frozen=True, kw_only=True)
class LockUpdate:
    """A lock that was written, and its changes as text."""

    name: str
    file: Path
    digest: str
    size: int
    changes: tuple[str, ...]


def lock_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
    keep: bool = False,
) -> LockUpdate:
    """Writes the lock of a rootfs, and builds the rootfs. With `keep` the locked files stay and only the result is updated.

    Raises ContainerError, UnknownNameError, ManifestError.
    """
    spec, paths = find_rootfs(checkout, name), CachePaths(cache=cache)
    store, folder = paths.store, paths.tar(_NONE).parent
    with (
        storage_errors(paths.base),
        file_lock(paths.lock(f"lock-{name}"), lambda: observer.stage(f"{name}: waiting")),
    ):
        make_folders(folder)
        with tempfile.TemporaryDirectory(prefix=".locking-", dir=folder) as scratch:
            draft = _kept(spec) if keep else _resolved(spec, checkout, store, observer)
            fetch_locked(spec, draft, store, sources=environment.get(SOURCES, "").split(), observer=observer)
            draft = draft.model_copy(
                update={kind: _with_sha1(getattr(draft, kind), store) for kind in ("packages", "parts")}
            )
            observer.stage(f"{name}: assembling")
            tar = Path(scratch) / "root.tar"
            built = assemble(
                spec.definition, draft, files=store.checked, tar=tar, on_file=lambda done, total: None
            )
            lock = draft.model_copy(update={"digest": built.digest, "size": built.size})
            with staged_file(paths.tar(lock.digest)) as path:
                tar.replace(path)
            record_verified(paths, lock.digest)
    before = read_lock(spec.lock_file) if spec.lock_file.exists() else None
    write_atomic(spec.members_file, built.members.encode())
    write_atomic(spec.lock_file, lock.text().encode())
    return LockUpdate(
        name=name, file=spec.lock_file, digest=lock.digest, size=lock.size, changes=_changes(before, lock)
    )


def _kept(spec: RootfsSpec) -> Lock:
    """The present lock's files."""
    lock = read_lock(spec.lock_file)
    if len(spec.definition.parts) != len(lock.parts):
        raise ContainerError(f"{spec.name}: `parts` changed", hint="write the lock again without --keep")
    return lock.model_copy(update={"definition": spec.definition.digest()})


def _resolved(spec: RootfsSpec, checkout: Path, store: Store, observer: Observer) -> Lock:
    """The files that mirrors and package index have now."""
    definition = spec.definition
    observer.stage(f"{spec.name}: resolving {len(definition.packages)} packages of {definition.suite}")
    packages, parts = resolve(definition, apt_settings())
    wheels = definition.wheels
    if wheels:
        observer.stage(f"{spec.name}: choosing wheels for Python {wheels.python}")
    return Lock(
        schema=1,
        definition=definition.digest(),
        packages=tuple(packages),
        parts=tuple(parts),
        wheels=choose_wheels(wheels, checkout, store=store) if wheels else (),
        digest=_NONE,
        size=0,
    )


def _with_sha1(entries: tuple[LockedPackage, ...], store: Store) -> tuple[LockedPackage, ...]:
    def sha1(entry: LockedPackage) -> str:
        return hashlib.sha1(store.path(entry.sha256).read_bytes(), usedforsecurity=False).hexdigest()

    return tuple(entry.model_copy(update={"sha1": sha1(entry)}) for entry in entries)


def _changes(before: Lock | None, after: Lock) -> tuple[str, ...]:
    """Packages and wheels that were added, removed or changed version."""
    if before is None:
        return ("new",)
    old, new = ({entry.name: entry.version for entry in lock.files} for lock in (before, after))
    lines = [
        f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if not lines and before.digest != after.digest:
        lines.append("the same packages and wheels, another rootfs: see the changes of the member list")
    return tuple(lines)
