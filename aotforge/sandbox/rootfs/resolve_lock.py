"""`invoke containers.lock`: a definition, resolved against what mirrors and index have now, becomes a lock and a member list."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.assemble import assemble
from aotforge.sandbox.rootfs.build_rootfs import fetch_locked
from aotforge.sandbox.rootfs.definitions import Lock, LockedPackage, read_lock
from aotforge.sandbox.rootfs.lock_check import source_digest
from aotforge.sandbox.rootfs.mirrors import apt_settings
from aotforge.sandbox.rootfs.package_store import Store
from aotforge.sandbox.rootfs.pip_wheels import choose_wheels
from aotforge.sandbox.rootfs.resolve_packages import resolve
from aotforge.sandbox.rootfs.rootfs import CachePaths
from aotforge.sandbox.rootfs.rootfs_cache import (
    SOURCES,
    RootfsSpec,
    cache_lock,
    find_rootfs,
    record_verified,
    staged_file,
    storage_errors,
)

_NONE = "0" * 64


@dataclass(frozen=True, kw_only=True)
class LockUpdate:
    """A lock that was written, and in words what changed against the one before."""

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
    """Make the lock of a root anew, and the root. With `keep` the locked files stay and only the result is recorded anew.

    Raises ContainerError, UnknownNameError, ManifestError.
    """
    named = find_rootfs(checkout, name)
    places = CachePaths(cache=cache.absolute())
    with (
        storage_errors(places.base),
        cache_lock(places, f"lock-{name}", lambda: observer.stage(f"{name}: waiting")),
    ):
        places.tar(_NONE).parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".locking-", dir=places.tar(_NONE).parent) as folder:
            tar = Path(folder) / "root.tar"
            draft, members = _draft(named, checkout, places, tar, environment, observer, keep)
            with staged_file(places.tar(draft.digest)) as path:
                tar.replace(path)
            record_verified(places, draft.digest)
    before = read_lock(named.lock_file) if named.lock_file.exists() else None
    write_atomic(named.members_file, members.encode())
    write_atomic(named.lock_file, draft.text().encode())
    return LockUpdate(
        name=name, file=named.lock_file, digest=draft.digest, size=draft.size, changes=_changes(before, draft)
    )


def _draft(
    named: RootfsSpec,
    checkout: Path,
    places: CachePaths,
    tar: Path,
    environment: Mapping[str, str],
    observer: Observer,
    keep: bool,
) -> tuple[Lock, str]:
    definition = named.definition
    empty = Lock(
        schema=1, definition=source_digest(named), packages=(), parts=(), wheels=(), digest=_NONE, size=0
    )
    if definition is None:
        from aotforge.sandbox.rootfs.registry import pull_root  # noqa: PLC0415 - needs an engine

        made = pull_root(named, tar, observer)
        return empty.model_copy(update={"digest": made.digest, "size": made.size}), made.members
    store = Store(places.store)
    if keep:
        before = read_lock(named.lock_file)
        draft = before.model_copy(update={"definition": empty.definition})
    else:
        observer.stage(f"{named.name}: resolving {len(definition.packages)} packages of {definition.suite}")
        packages, parts = resolve(definition, apt_settings())
        draft = empty.model_copy(update={"packages": tuple(packages), "parts": tuple(parts)})
        if definition.wheels:
            observer.stage(f"{named.name}: choosing wheels for Python {definition.wheels.python}")
            draft = draft.model_copy(
                update={"wheels": choose_wheels(definition.wheels, checkout, store=store)}
            )
    fetch_locked(named.name, definition, draft, store, environment.get(SOURCES, "").split(), observer)
    draft = draft.model_copy(
        update={
            "packages": tuple(_with_sha1(entry, store) for entry in draft.packages),
            "parts": tuple(_with_sha1(entry, store) for entry in draft.parts),
        }
    )
    if len(definition.parts) != len(draft.parts):
        raise ContainerError(f"{named.name}: `parts` changed", hint="make the lock anew, without --keep")
    observer.stage(f"{named.name}: assembling")
    made = assemble(definition, draft, files=store.checked, tar=tar, on_file=lambda done, total: None)
    return draft.model_copy(update={"digest": made.digest, "size": made.size}), made.members


def _with_sha1(entry: LockedPackage, store: Store) -> LockedPackage:
    sha1 = hashlib.sha1(store.path(entry.sha256).read_bytes(), usedforsecurity=False).hexdigest()
    return entry.model_copy(update={"sha1": sha1})


def _changes(before: Lock | None, after: Lock) -> tuple[str, ...]:
    """Packages and wheels that came, went or changed version."""
    if before is None:
        return ("new",)
    old = {entry.name: entry.version for entry in before.files}
    new = {entry.name: entry.version for entry in after.files}
    lines = [
        f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if not lines and before.digest != after.digest:
        lines.append("the same packages and wheels, another root: see the member list's changes")
    return tuple(lines)
