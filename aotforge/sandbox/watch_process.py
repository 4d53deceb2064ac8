"""The process of a `MemoryWatch`: the standard library alone, since one starts for each program."""

import os
import select
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_SECONDS = 0.05
_RESERVE = 1 << 30
"""Bytes of the machine's memory that a program leaves free, or a quarter of what was free at its start."""

_COUNTED = b"RssAnon:", b"RssShmem:", b"VmSwap:", b"VmPTE:"
"""What processes share counts for each of them: a release's programs are one process, and a few small ones of the system."""

_FIRST = os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1)
"""Before all processes that have no such class: a program can have thousands that can run. Root alone may give it, and only root's processes
have no bound by the kernel."""


def main() -> None:
    """The limits are its arguments: bytes and processes. The number to watch comes on standard input, whose end is the end."""
    with suppress(OSError):
        os.sched_setscheduler(0, *_FIRST)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
    Path("/proc/thread-self/children").read_bytes()  # not every kernel has it
    os.write(1, b"\n")
    if len(named := os.read(0, 8)) == 8:
        memory, processes = map(int, sys.argv[1:])
        (root,) = struct.unpack("=q", named)
        watch(root, memory, processes, lambda: bool(select.select([0], [], [], _SECONDS)[0]))


def watch(root: int, memory: int, processes: int, ended: Callable[[], bool]) -> None:
    """As `MemoryWatch`, in this thread; `ended` waits 50 ms."""
    try:
        most, least = _kernel_bytes() + memory, min(_RESERVE, _available_bytes() // 4)
        while not ended():
            found, threads = _with_descendants(root, processes)
            if threads > processes or _kernel_bytes() > most or _take_more(found, memory, least):
                _kill(found)
    except BaseException:  # without the watch nothing bounds it
        _kill([root])
        raise


def _take_more(processes: Iterable[int], memory: int, least: int) -> bool:
    """Whether they have more than `memory`, or the machine has less than `least` left."""
    taken = 0
    for process in processes:
        taken += _bytes_of(process)
        if taken > memory or _available_bytes() < least:
            return True
    return False


def _with_descendants(process: int, most: int) -> tuple[list[int], int]:
    """Processes, and the number of their threads; both are not complete for more than `most`, of which there can be new ones without end."""
    found, threads = [process], 0
    for parent in found:
        for task in _tasks(parent):
            threads += 1
            with suppress(OSError):
                found += map(int, (task / "children").read_text(encoding="ascii").split())
        if threads > most:
            break
    return found, threads


def _tasks(process: int) -> list[Path]:
    """Empty for a process that ends meanwhile, which a program can repeat at will."""
    try:
        return [*Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return []


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
            os.sched_setscheduler(process, *_FIRST)  # it can but end, and others wait for that of process 1


def _kernel_bytes() -> int:
    """The kernel's memory that it cannot free: of semaphores, locks, mappings, stacks of threads."""
    return _memory_of_machine("SUnreclaim:", "KernelStack:")


def _available_bytes() -> int:
    """Without the limits of control groups, whose use includes files that can be read again."""
    return _memory_of_machine("MemAvailable:")


def _memory_of_machine(*names: str) -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


def _bytes_of(process: int) -> int:
    """Its memory with page tables, but for files that can be read again; 0 when it has ended.

    What /proc has of a process is that of its first thread, which may have ended before others.
    """
    return next(
        filter(None, map(_bytes_of_thread, (process, *(int(task.name) for task in _tasks(process))))), 0
    )


def _bytes_of_thread(process: int) -> int:
    """As above. The counters of `status`: what walks a process's mappings, as smaps_rollup, takes seconds of one that has a file of the
    system a thousand times. Of the characters that end a line, a process can have all but this one in its name."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_bytes().split(b"\n")
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(_COUNTED))
    return 0


if __name__ == "__main__":
    main()
