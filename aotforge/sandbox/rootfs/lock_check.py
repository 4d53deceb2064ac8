"""A lock is compared with what it was made from: the definition, and the requirements that its wheels come out of."""

from __future__ import annotations

from pathlib import Path

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import Lock
from aotforge.sandbox.rootfs.rootfs_cache import RootfsSpec


def check_lock(named: RootfsSpec, lock: Lock, checkout: Path) -> None:
    """Raises ContainerError when the lock is older than its definition or the pinned wheels."""
    hint = f"make the lock anew: invoke containers.lock --name {named.name}"
    if lock.definition != source_digest(named):
        raise ContainerError(
            f"{named.lock_file} does not match its definition",
            cause="the definition was changed after the lock was made",
            hint=hint,
        )
    wheels = named.definition.wheels if named.definition else None
    if wheels is None:
        return
    from aotforge.sandbox.rootfs.pip_wheels import wanted  # noqa: PLC0415

    locked = {wheel.name: wheel for wheel in lock.wheels}
    for name, pin in wanted(wheels, checkout).items():
        if name not in locked or locked[name].sha256 not in pin.hashes:
            has = locked[name].version if name in locked else "none"
            raise ContainerError(
                f"{named.lock_file} has {name} {has}, {wheels.requirements} pins {pin.version}",
                cause="the requirements were changed after the lock was made",
                hint=hint,
            )


def source_digest(named: RootfsSpec) -> str:
    """SHA-256 of what a lock is made from: the definition, or the registry image's name."""
    import hashlib  # noqa: PLC0415

    if named.definition is not None:
        return named.definition.digest()
    return hashlib.sha256(str(named.source.image).encode()).hexdigest()
