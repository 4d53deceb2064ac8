"""A root is made: what is missing is fetched, every file is checked, the tar is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from aotforge.sandbox.rootfs.assemble import Assembled, assemble
from aotforge.sandbox.rootfs.definitions import Definition, Lock
from aotforge.sandbox.rootfs.fetch import fetch
from aotforge.sandbox.rootfs.mirrors import apt_settings
from aotforge.sandbox.rootfs.package_store import Store
from aotforge.sandbox.rootfs.rootfs import Places
from aotforge.sandbox.rootfs.rootfs_cache import Named, OnStage


def make_root(
    named: Named, lock: Lock, places: Places, tar: Path, sources: Sequence[str], on_stage: OnStage
) -> Assembled:
    """Write the root of `lock` to `tar`. Raises ContainerError, OSError."""
    store = Store(places.store)
    if named.definition is None:
        from aotforge.sandbox.rootfs.registry import pull_root  # noqa: PLC0415 - needs an engine

        return pull_root(named, tar, on_stage)
    fetch_locked(named.name, named.definition, lock, store, sources, on_stage)
    on_file = _steps(named.name, "unpacking", on_stage)
    return assemble(named.definition, lock, files=store.checked, tar=tar, on_file=on_file)


def fetch_locked(
    name: str, definition: Definition, lock: Lock, store: Store, sources: Sequence[str], on_stage: OnStage
) -> None:
    """Bring every file of `lock` into the store. Raises ContainerError."""
    python = definition.wheels.python if definition.wheels else "3"
    fetch(
        (*lock.packages, *lock.parts), lock.wheels, store=store, sources=sources, settings=apt_settings(),
        wheel_python=python, on_file=_steps(name, "fetching", on_stage),
    )  # fmt: skip


def _steps(name: str, what: str, on_stage: OnStage) -> Callable[[int, int], None]:
    """Tells the beginning, every fifth of the way, and nothing when there is nothing to do."""
    told = -1

    def report(done: int, total: int) -> None:
        nonlocal told
        fifth = done * 5 // total if total else 5
        if total and fifth != told and done < total:
            on_stage(f"{name}: {what}, {done} of {total} files")
        told = fifth

    return report
