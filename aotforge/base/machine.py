"""CPUs and memory that this process may use, from /proc and its cgroups."""

import os
from pathlib import Path

GIB = 1 << 30
CGROUPS = Path("/sys/fs/cgroup")
"""Cgroups of version 2; parent of the controllers of version 1."""
MEMORY_V2, MEMORY_V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
"""Files of a cgroup with its memory limit and its use, in bytes."""


def available_cpus() -> int:
    """CPUs that this process may use: affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0))
    for folder in _cgroup_folders():
        quota = _words(folder / "cpu.max")
        if len(quota) == 2 and quota[0].isdigit():
            count = min(count, max(1, round(int(quota[0]) / int(quota[1]))))
        old = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
        if old[0] and old[1] and int(old[0][0]) > 0:
            count = min(count, max(1, round(int(old[0][0]) / int(old[1][0]))))
    return count


def available_memory() -> int:
    """Bytes that can be used without swapping: MemAvailable, and what the cgroup has left."""
    lines = dict(line.split(":", 1) for line in _text(Path("/proc/meminfo")).splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    for folder in _cgroup_folders():
        for limit, usage in (MEMORY_V2, MEMORY_V1):
            most, used = _words(folder / limit), _words(folder / usage)
            if most and used and most[0].isdigit():
                free = min(free, max(0, int(most[0]) - int(used[0])))
    return free


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 when it is gone."""
    fields = _words(Path(f"/proc/{pid}/statm"))
    return int(fields[1]) * os.sysconf("SC_PAGESIZE") if len(fields) > 1 else 0


def _cgroup_folders() -> list[Path]:
    """Folders of this process's cgroups and all above them, v2 and v1."""
    folders: list[Path] = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        bases = [CGROUPS / name for name in controllers.split(",")]  # without controllers: version 2
        for base in bases:
            current = base / path.lstrip("/")
            folders.extend(folder for folder in (current, *current.parents) if folder.is_relative_to(base))
    return folders


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()
