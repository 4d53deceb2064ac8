"""Bound on the memory of all processes of a program, where no control group can be made.

`refused_system_calls` keeps programs from memory that no process has mapped; `MemoryWatch` ends a program with too much of the rest.
"""

import os
import platform
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_SECONDS = 0.05
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32 = 0x40000000
"""Bit of the numbers of x32's system calls, which are the same calls again."""

_REFUSED = (29, 319, 447)
"""shmget, memfd_create and memfd_secret of x86-64."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38


def refused_system_calls() -> bytes:
    """A seccomp filter, a `sock_filter` per 8 bytes: calls that make memory without a mapping fail with ENOSYS, and so do all calls of
    other instruction sets. Empty on a machine that is not x86-64.

    Numbers are of Linux' arch/x86/entry/syscalls/syscall_64.tbl.
    """
    if platform.machine() != "x86_64":
        return b""
    refuse = 4 + len(_REFUSED)
    steps = [
        (_LOAD, 0, 0, 4),  # the instruction set
        (_EQUAL, 0, refuse - 1, _AUDIT_ARCH_X86_64),
        (_LOAD, 0, 0, 0),  # the number
        (_AT_LEAST, refuse - 3, 0, _X32),
        *((_EQUAL, refuse - 4 - at, 0, number) for at, number in enumerate(_REFUSED)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class MemoryWatch:
    """Kills a process and its descendants when they have more than `limit` bytes together: private memory, shared memory and swap.

    It looks every 50 ms. `join` is for `preexec_fn` of the process.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
        end = self._write
        return lambda: (os.write(end, struct.pack("=q", os.getpid())), None)[1]

    def _watch(self) -> None:
        named = os.read(self._read, 8)
        if len(named) < 8:
            return
        (root,) = struct.unpack("=q", named)
        while not self._ended.wait(_SECONDS):
            found = [root, *_descendants(root)]
            if sum(map(_bytes_of, found)) > self._limit:
                for process in found:
                    with suppress(OSError):
                        os.kill(process, signal.SIGKILL)


def _descendants(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text(encoding="ascii").split()):
                yield child
                yield from _descendants(child)


def _bytes_of(process: int) -> int:
    """Its own memory and its share of what it shares with others; 0 when it has ended.

    A process can hide its shares from others; then all that it shares counts.
    """
    shares, complete = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:"), ("RssAnon:", "RssShmem:", "VmSwap:")
    for name, wanted in (("smaps_rollup", shares), ("status", complete)):
        with suppress(OSError):
            text = Path(f"/proc/{process}/{name}").read_text(encoding="utf-8", errors="replace")
            return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(wanted))
    return 0
