"""Bound on the memory of all processes of a program, where no control group can be made.

`refused_system_calls` keeps programs from memory that no process has mapped; `MemoryWatch` ends a program with too much of the rest.
"""

import errno
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aotforge.base.child_processes import start_child
from aotforge.sandbox import watch_process

_COMMAND = (sys.executable, "-I", "-S", watch_process.__file__)

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

    It looks every 50 ms, in a process of its own: a thread would need the interpreter's lock, whose holder may wait for a processor among
    thousands of processes.
    """

    def __init__(self, *, memory_bytes: int, processes: int) -> None:
        self._limits = memory_bytes, processes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # the end of its input ends it

    def join(self) -> Callable[[], None]:
        """Starts the watch, and gives a function for `preexec_fn` that names the calling process as the one to watch. Raises OSError."""
        command, pipe = [*_COMMAND, *map(str, self._limits)], subprocess.PIPE
        self._process = start_child("memory watch", command, stdin=pipe, stdout=pipe)
        assert self._process.stdin and self._process.stdout
        if not self._process.stdout.read(1):
            raise OSError(errno.ECHILD, "the watch of its memory does not start")
        handle = self._process.stdin.fileno()

        def join() -> None:
            os.write(handle, struct.pack("=q", os.getpid()))

        return join
