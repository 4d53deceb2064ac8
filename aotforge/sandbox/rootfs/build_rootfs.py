"""A root is made: what is missing is fetched, every file is checked, the tar is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from aotforge.base.progress import Observer
from aotforge.sandbox.rootfs.assemble import Assembled, assemble
from aotforge.sandbox.rootfs.definitions import Definition, Lock
from aotforge.sandbox.rootfs.fetch import fetch
from aotforge.sandbox.rootfs.mirrors import apt_settings
from aotforge.sandbox.rootfs.package_store import Store
from aotforge.sandbox.rootfs.rootfs import CachePaths
from aotforge.sandbox.rootfs.rootfs_cache import RootfsSpec


def build_rootfs(
    named: RootfsSpec, lock: Lock, places: CachePaths, tar: Path, sources: Sequence[str], observer: Observer
) -> Assembled:
    """Write the root of `lock` to `tar`. Raises ContainerError, OSError."""
    store = Store(places.store)
    if named.definition is None:
        from aotforge.sandbox.rootfs.registry import pull_root  # noqa: PLC0415 - needs an engine

        return pull_root(named, tar, observer)
    fetch_locked(named.name, named.definition, lock, store, sources, observer)
    on_file = _steps(named.name, "unpacking", observer)
    return assemble(named.definition, lock, files=store.checked, tar=tar, on_file=on_file)


def fetch_locked(
    name: str, definition: Definition, lock: Lock, store: Store, sources: Sequence[str], observer: Observer
) -> None:
    """Bring every file of `lock` into the store. Raises ContainerError."""
    python = definition.wheels.python if definition.wheels else "3"
    fetch(
        (*lock.packages, *lock.parts), lock.wheels, store=store, sources=sources, settings=apt_settings(),
        wheel_python=python, on_file=_steps(name, "fetching", observer),
    )  # fmt: skip


def _steps(name: str, what: str, observer: Observer) -> Callable[[int, int], None]:
    """Tells the beginning, every fifth of the way, and nothing when there is nothing to do."""
    told = -1

    def report(done: int, total: int) -> None:
        nonlocal told
        fifth = done * 5 // total if total else 5
        if total and fifth != told and done < total:
            observer.stage(f"{name}: {what}, {done} of {total} files")
        told = fifth

    return report
