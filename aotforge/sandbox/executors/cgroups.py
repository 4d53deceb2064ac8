"""Control groups for a process and all that it starts, where this user may make them: version 2, and version 1's memory and pids."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from aotforge.sandbox.executors import owner

_ROOT = Path("/sys/fs/cgroup")
_VERSION_2 = ("memory", "pids")
_EMPTY_SECONDS = 2.0


class ControlGroups:
    """Groups with limits on memory (without swap) and processes; `folders` is empty where none can be made."""

    def __init__(self, *, memory_bytes: int, processes: int) -> None:
        self.folders: list[Path] = []
        name = owner.new_name(owner.this_process())
        try:
            if (_ROOT / "cgroup.controllers").exists():
                self._make(
                    _ROOT / name,
                    {"memory.max": memory_bytes, "memory.swap.max": 0, "pids.max": processes},
                    needed=("memory.max", "pids.max"),
                )
            else:
                self._make(
                    _ROOT / "memory" / name,
                    {"memory.limit_in_bytes": memory_bytes, "memory.memsw.limit_in_bytes": memory_bytes},
                    needed=("memory.limit_in_bytes",),
                )
                self._make(_ROOT / "pids" / name, {"pids.max": processes}, needed=("pids.max",))
        except OSError:
            self.remove()

    def _make(self, folder: Path, limits: Mapping[str, int], *, needed: tuple[str, ...]) -> None:
        folder.mkdir()
        self.folders.append(folder)
        for name, value in limits.items():
            try:
                (folder / name).write_text(str(value), encoding="ascii")
            except OSError:
                if name in needed:
                    raise

    def joining(self) -> Callable[[], None] | None:
        """What a new process does to join, before its program; None where there are no groups."""
        if not self.folders:
            return None
        files = [os.fsencode(folder / "cgroup.procs") for folder in self.folders]

        def join() -> None:
            for file in files:
                handle = os.open(file, os.O_WRONLY)
                os.write(handle, b"0")
                os.close(handle)

        return join

    def counters(self) -> dict[str, int]:
        """Processes killed for memory, and processes refused, so far."""
        found = {"oom_kills": 0, "refused_forks": 0}
        for folder in self.folders:
            for key, file, word in (
                ("oom_kills", "memory.events", "oom_kill"),
                ("oom_kills", "memory.oom_control", "oom_kill"),
                ("refused_forks", "pids.events", "max"),
            ):
                with suppress(OSError):
                    for line in (folder / file).read_text(encoding="ascii").splitlines():
                        if line.split()[:1] == [word]:
                            found[key] = int(line.split()[1])
        return found

    def remove(self) -> None:
        """Take the groups away; their processes must be gone or going."""
        end = time.monotonic() + _EMPTY_SECONDS
        for folder in self.folders:
            while folder.exists():
                with suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > end:
                    break
                time.sleep(0.01)
        self.folders = []


def reap_groups() -> list[str]:
    """Remove groups whose owners are gone."""
    removed = []
    for parent in (_ROOT, _ROOT / "memory", _ROOT / "pids"):
        for folder in sorted(parent.glob("aotforge-*")):
            who = owner.owner_of(folder.name)
            if who is not None and who.alive() is False:
                with suppress(OSError):
                    folder.rmdir()
                    removed.append(str(folder))
    return removed
