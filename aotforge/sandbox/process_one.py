"""Process 1 of bubblewrap's sandbox, held by a descriptor: its end is the end of all processes there.

bubblewrap's own end does not suffice: a program of the sandbox that takes hold of process 1 can let bubblewrap leave before it.
"""

import os
import re
import select
import signal
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHILD = re.compile(rb'"child-pid": (\d+)')
_INFO_BYTES, _INFO_END = 256, b"}\n"
_END_MILLISECONDS = 60_000


class ProcessOne:
    """`options` and `descriptors` are for bubblewrap, whose program starts only when process 1 is held. On exit process 1 is killed, and
    its processes with it, before the block is left."""

    def __init__(self) -> None:
        self._info, self._report = os.pipe()
        self._blocked, self._go = os.pipe()
        self._open = {self._info, self._report, self._blocked, self._go}
        self._held = -1
        self._thread = threading.Thread(target=self._hold, daemon=True)

    @property
    def options(self) -> list[str]:
        """Of bubblewrap."""
        return ["--info-fd", str(self._report), "--block-fd", str(self._blocked)]

    @property
    def descriptors(self) -> tuple[int, int]:
        """Those that bubblewrap inherits."""
        return self._report, self._blocked

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(self._report)  # bubblewrap may not have started
        self._thread.join()
        if self._held >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._held, signal.SIGKILL)
            ended = select.poll()  # select takes no descriptor above 1023
            ended.register(self._held, select.POLLIN)
            ended.poll(_END_MILLISECONDS)
            os.close(self._held)
        self._close(*self._open)

    def release(self) -> None:
        """Closes what bubblewrap has inherited, once it has been started: a machine may run hundreds of these."""
        self._close(*self.descriptors)

    def _close(self, *descriptors: int) -> None:
        for one in self._open.intersection(descriptors):
            self._open.discard(one)
            os.close(one)

    def _hold(self) -> None:
        info = b""
        while not info.endswith(_INFO_END) and (piece := os.read(self._info, _INFO_BYTES)):
            info += piece  # to its end: bubblewrap may still write
        if (found := _CHILD.search(info)) is None:
            return
        try:
            self._held = os.pidfd_open(int(found[1]))
        except OSError:  # it has ended, or this process has no descriptor left: the program must not start
            with suppress(ProcessLookupError):
                os.kill(int(found[1]), signal.SIGKILL)
            return
        with suppress(BrokenPipeError):
            os.write(self._go, b"\n")
        self._close(self._info, self._go)


def can_hold() -> bool:
    """Whether this machine gives descriptors of processes: Linux 5.3."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
