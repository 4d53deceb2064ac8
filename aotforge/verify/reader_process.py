"""Processes that read and execute images of releases, with limits of time and of their answers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe

from aotforge.base.child_processes import fixed_environment
from aotforge.compile.pool import WorkerProcess, import_path
from aotforge.errors import ToolchainError

READY = b"ready"
_START_SECONDS = 120.0


class ReaderProcess(WorkerProcess):
    """`python -m MODULE ARGUMENTS... PARENT FD [MORE...]`; its first message on the connection is READY. Raises ToolchainError when
    it cannot be started."""

    def __init__(self, module: str, arguments: Sequence[str] = (), more: Sequence[str] = ()) -> None:
        self.connection, theirs = Pipe()
        self._started = False
        values = {
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            # as many threads as workers already keep every CPU busy
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(import_path()),
        }
        with theirs, ExitStack() as failed:
            failed.callback(self.connection.close)
            super().__init__(
                [sys.executable, "-m", module, *arguments, str(os.getpid()), str(theirs.fileno()), *more],
                environment=fixed_environment(values, "PATH", "TMPDIR", "CC", "LD_LIBRARY_PATH"),
                pass_fds=(theirs.fileno(),),
            )
            failed.pop_all()

    def exchange(self, message: object, *, seconds: float, most: int) -> bytes:
        """The answer to a message, of at most `most` bytes.

        Raises TimeoutError when both take longer than `seconds`, which ends the process; OSError, EOFError for one that has ended;
        ToolchainError for one that has not started.
        """
        if not self._started:
            self._wait()
            self._started = True
        with self._limited(seconds):
            self.connection.send(message)
            return self.connection.recv_bytes(most)

    def _wait(self) -> None:
        try:
            with self._limited(_START_SECONDS):
                ready = self.connection.recv_bytes(len(READY)) == READY
        except (OSError, EOFError):
            ready = False
        if not ready:
            raise ToolchainError(
                f"the process that reads images {self.death()}: {self.log()}",
                cause="the environment of this Python is incomplete",
                hint="./dev doctor",
            )

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        late = threading.Event()

        def end() -> None:
            late.set()
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, EOFError):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
