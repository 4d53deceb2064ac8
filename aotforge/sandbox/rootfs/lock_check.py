"""Check that a lock matches its definition and the requirements file that pins its wheels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import Lock, RootfsSpec, Wheels

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of a requirements file: its version, and the SHA-256 of every allowed file."""

    version: str
    hashes: frozenset[str]


def pinned_wheels(wheels: Wheels, checkout: Path) -> Mapping[str, Pin]:
    """The pins of a definition's wheels; of several (with markers) the last. Raises ContainerError for a missing one."""
    file, known = checkout / wheels.requirements, {}
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ContainerError(f"{file}: cannot be read: {error.strerror}") from error
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line):
            hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
            known[match[1].lower().replace("_", "-")] = Pin(version=match[2], hashes=hashes)
    if missing := [name for name in wheels.names if name not in known]:
        raise ContainerError(
            f"{file} does not pin {missing[0]}", hint="correct `wheels.names` in the definition"
        )
    return {name: known[name] for name in wheels.names}


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
