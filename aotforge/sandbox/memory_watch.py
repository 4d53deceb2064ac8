"""Bound on the memory of all processes of a program, where no control group can be made.

`refused_system_calls` keeps programs from memory that no process has mapped; `MemoryWatch` ends a program with too much of the rest.
"""

import os
import platform
import signal
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_SECONDS = 0.05
_RESERVE = 1 << 30
"""Bytes of the machine's memory that a program leaves free, or a quarter of what was free at its start."""

_FIRST = os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1)
"""Before all processes that have no such class: a program can have thousands that can run. Root alone may give it, and only root's processes
have no bound by the kernel."""

_AUDIT_ARCH_X86_64 = 0xC000003E
_X32 = 0x40000000
"""Bit of the numbers of x32's system calls, which are the same calls again."""

_REFUSED = {
    "shmget": 29,
    "socket": 41,
    "socketpair": 53,
    "semget": 64,
    "msgget": 68,
    "ptrace": 101,
    "mount": 165,
    "io_setup": 206,
    "mq_open": 240,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "splice": 275,
    "tee": 276,
    "vmsplice": 278,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "memfd_create": 319,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "clone3": 435,
    "pidfd_getfd": 438,
    "memfd_secret": 447,
}
"""Numbers of Linux' arch/x86/entry/syscalls/syscall_64.tbl. glibc takes clone where there is no clone3, whose flags no filter can read."""

_MMAP, _IOCTL, _CLONE, _FCNTL, _FALLOCATE = 9, 16, 56, 72, 285
_SHARED_ANONYMOUS = 0x01 | 0x20
_NEW_USER = 0x10000000
_SHARED_MEMORY, _VFORK_OR_THREAD = 0x100, 0x4000 | 0x10000
"""Flags of mmap and of clone: memory that passes from process to process is not counted, but for that of threads and vfork."""

_MODES = (0x01, 0x08, 0x10, 0x20, 0x40)
"""Of fallocate, each but the first use: file systems compare the limit on a file's size only where it grows at its end."""

_RESERVATIONS = (0x40305828, 0x4030582A, 0x40305839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE, which are fallocate with that flag."""

_SET_LEASE = 1024
"""Of fcntl: a process that opens the file, such as a program of this machine that is root's, waits for its holder."""

_PARTLY_REFUSED = (
    (_MMAP, 3, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS),
    (_CLONE, 0, _NEW_USER, _NEW_USER),
    (_CLONE, 0, _SHARED_MEMORY | _VFORK_OR_THREAD, _SHARED_MEMORY),
    *((_FALLOCATE, 1, mode, mode) for mode in _MODES),
    *((_IOCTL, 1, 0xFFFFFFFF, number) for number in _RESERVATIONS),
    (_FCNTL, 1, 0xFFFFFFFF, _SET_LEASE),
)
"""Calls by number, argument, mask and the value that is refused."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _SET, _ARGUMENTS = 0, 4, 16
"""Places in `seccomp_data`: the call's number, the instruction set, the arguments of 8 bytes each."""

_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38


def refused_system_calls() -> bytes:
    """A seccomp filter, a `sock_filter` per 8 bytes: calls fail with ENOSYS that make memory which no process need have mapped (files in
    memory, shared memory, semaphores, messages, huge pages in pipes, sockets, file systems), or a user namespace, where such calls are
    permitted again; so do those that use the caller's keyrings, those that change or read another process, such as process 1, those that
    reserve space beyond a file's end, asynchronous reads, of which the machine has a number, leases, and all calls of other instruction
    sets. Empty on a machine that is not x86-64.
    """
    if platform.machine() != "x86_64":
        return b""
    refuse, end = (_RETURN, 0, 0, _NO_SUCH_CALL), (_RETURN, 0, 0, _ALLOW)
    steps = [
        (_LOAD, 0, 0, _SET),
        (_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
    ]
    for number in _REFUSED.values():
        steps += [(_EQUAL, 0, 1, number), refuse]
    for number, argument, mask, value in _PARTLY_REFUSED:
        steps += [
            (_LOAD, 0, 0, _NUMBER),
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
            (_AND, 0, 0, mask),
            (_EQUAL, 0, 1, value),
            refuse,
        ]
    steps.append(end)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class MemoryWatch:
    """Kills a process and its descendants when they have more than `memory_bytes` together (private memory, shared memory, page tables
    and swap) or more than `processes` threads, which the kernel does not count for root; also when the kernel's own memory,
    whose owner is not known, has grown by `memory_bytes`, and when the machine has little memory left: processes
    that follow one another quickly are not all seen.

    It looks every 50 ms. `join` is for `preexec_fn` of the process.
    """

    def __init__(self, *, memory_bytes: int, processes: int) -> None:
        self._memory, self._processes = memory_bytes, processes
        self._read, self._write = os.pipe()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def join(self) -> Callable[[], None]:
        """A function that names the calling process as the one to watch."""

        def join() -> None:
            os.write(self._write, struct.pack("=q", os.getpid()))

        return join

    def _watch(self) -> None:
        named = os.read(self._read, 8)
        if len(named) < 8:
            return
        (root,) = struct.unpack("=q", named)
        with suppress(OSError):
            os.sched_setscheduler(0, *_FIRST)
        try:
            self._bound(root)
        except BaseException:  # without the watch nothing bounds it
            _kill([root])
            raise

    def _bound(self, root: int) -> None:
        most, least = _kernel_bytes() + self._memory, min(_RESERVE, _available_bytes() // 4)
        while not self._ended.wait(_SECONDS):
            found, threads = _with_descendants(root, self._processes)
            if threads > self._processes or _kernel_bytes() > most or self._take_more(found, least):
                _kill(found)

    def _take_more(self, processes: Iterable[int], least: int) -> bool:
        """Whether they have more memory than they may, or the machine has less than `least`: a look at one that shares much with others
        takes milliseconds."""
        taken = 0
        for process in processes:
            taken += _bytes_of(process)
            if taken > self._memory or _available_bytes() < least:
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
    """Its own memory with page tables, and its share of what it shares with others; 0 when it has ended.

    What /proc has of a process is that of its first thread, which may have ended before others.
    """
    return next(
        filter(None, map(_bytes_of_thread, (process, *(int(task.name) for task in _tasks(process))))), 0
    )


def _bytes_of_thread(process: int) -> int:
    """As above. A process can hide its shares from others; then all that it shares counts."""
    shares, complete = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:"), ("RssAnon:", "RssShmem:", "VmSwap:")
    found = 0
    for name, wanted in (("status", ("VmPTE:",)), ("smaps_rollup", shares), ("status", complete)):
        with suppress(OSError):
            text = Path(f"/proc/{process}/{name}").read_text(encoding="utf-8", errors="replace")
            found += sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(wanted))
            if name == "smaps_rollup":
                break
    return found
