"""Cgroups with limits for a process and its children: version 2, and version 1's memory and pids."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from aotforge.base.machine import CGROUPS, MEMORY_V1, MEMORY_V2
from aotforge.sandbox.executors import agent, owner

_REMOVE_SECONDS = 10.0


class ControlGroups:
    """Cgroups with limits on memory (without swap) and processes; `folders` is empty where none can be created."""

    def __init__(self, *, memory_bytes: int, processes: int) -> None:
        self.folders: list[Path] = []
        name = owner.new_name()
        memory, pids = str(memory_bytes), str(processes)
        try:
            if (CGROUPS / "cgroup.controllers").exists():
                self._make(CGROUPS / name, {MEMORY_V2[0]: memory, "pids.max": pids}, {"memory.swap.max": "0"})
            else:
                swap = {"memory.memsw.limit_in_bytes": memory}
                self._make(CGROUPS / "memory" / name, {MEMORY_V1[0]: memory}, swap)
                self._make(CGROUPS / "pids" / name, {"pids.max": pids}, {})
        except OSError:
            self.close()

    def _make(self, folder: Path, limits: Mapping[str, str], optional: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folders.append(folder)
        for name, value in limits.items():
            (folder / name).write_text(value, encoding="ascii")
        for name, value in optional.items():
            with suppress(OSError):
                (folder / name).write_text(value, encoding="ascii")

    def join(self) -> Callable[[], None] | None:
        """A function that adds the calling process, for `preexec_fn`; None where there are no cgroups."""
        if not self.folders:
            return None
        files = [os.fsencode(folder / "cgroup.procs") for folder in self.folders]

        def join() -> None:
            for file in files:
                handle = os.open(file, os.O_WRONLY)
                os.write(handle, b"0")
                os.close(handle)

        return join

    def counters(self) -> Mapping[str, int]:
        """Processes killed for memory and forks refused so far."""
        return agent.counters(map(str, self.folders))

    def close(self) -> None:
        """Removes the cgroups; their processes must be gone or exiting."""
        end = time.monotonic() + _REMOVE_SECONDS
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
    """Removes orphaned cgroups."""
    removed = []
    for parent in (CGROUPS, CGROUPS / "memory", CGROUPS / "pids"):
        for folder in sorted(parent.glob("aotforge-*")):
            if owner.is_orphaned(folder.name):
                with suppress(OSError):
                    folder.rmdir()
                    removed.append(str(folder))
    return removed
