"""Who a container, a folder or a control group belongs to, so that a later command can tell whether anybody still needs it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LABEL = "aotforge.owner"
"""Every container of ours has it."""

DEADLINE = "aotforge.deadline"
KEEP = "aotforge.keep"
GRACE_SECONDS = 3600
"""Added to deadlines of owners that cannot be looked at: machines' clocks differ."""


@dataclass(frozen=True)
class Owner:
    """A process, once and for all: `machine` is the boot and the process namespace that `pid` counts in, `started` its start in clock ticks
    since that boot (proc(5))."""

    machine: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.started}"

    def alive(self) -> bool | None:
        """Whether it lives; None when it counts on another machine, in another namespace, or before a restart."""
        if self.machine != machine():
            return None
        return started(self.pid) == self.started


def machine() -> str:
    """This boot of this machine, and the process namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    return f"{boot[:16]}.{namespace}"


def started(pid: int) -> int:
    """A process' start time, -1 when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in {b"Z", b"X"} else int(fields[19])


def this_process() -> Owner:
    """The owner of what is made now."""
    return Owner(machine(), os.getpid(), started(os.getpid()))


def parse(text: str) -> Owner | None:
    """Inverse of `str`; None for what is none."""
    parts = text.split("-")
    if len(parts) < 3 or not parts[1].isdigit() or not parts[2].isdigit():
        return None
    return Owner(parts[0], int(parts[1]), int(parts[2]))


def new_name(owner: Owner) -> str:
    """A name that tells its owner, for containers, folders and control groups."""
    return f"aotforge-{owner}-{secrets.token_hex(4)}"


def owner_of(name: str) -> Owner | None:
    """The owner in a name made by `new_name`."""
    return parse(name.removeprefix("aotforge-")) if name.startswith("aotforge-") else None


def labels(owner: Owner, *, seconds: float, keep: bool) -> dict[str, str]:
    """What a container is marked with. `seconds` from now nobody can need it any more."""
    marks = {LABEL: str(owner), DEADLINE: str(int(time.time() + seconds))}
    return marks | ({KEEP: "1"} if keep else {})


def abandoned(marks: Mapping[str, str], *, now: float) -> bool:
    """Whether a container with these labels is nobody's: its process is gone (one that is to be kept has until its deadline), or that
    process cannot be asked and the deadline is well past."""
    try:
        owner, deadline = parse(marks.get(LABEL, "")), int(marks.get(DEADLINE, ""))
    except ValueError:
        return False
    if owner is None:
        return False
    alive = owner.alive()
    if alive is None:
        return now > deadline + GRACE_SECONDS
    return not alive and (KEEP not in marks or now > deadline)


def releasable(marks: Mapping[str, str]) -> bool:
    """Whether a container that was kept for people may go when they say so: its process is not at it any more."""
    owner = parse(marks.get(LABEL, ""))
    return KEEP in marks and owner is not None and not owner.alive()
