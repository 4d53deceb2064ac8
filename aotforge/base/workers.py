"""Worker processes with limits: start, messages, time, memory, the end of their output, restart.

A worker is `python -m MODULE FD PARENT ARGUMENTS...`. Messages are pickled values over a `multiprocessing`
connection on the socket FD; the first one that a worker sends is READY.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.base.child_processes import ChildEnvironment, start_child
from aotforge.base.machine import resident_bytes
from aotforge.errors import ToolchainError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

READY = "ready"
_POLL_SECONDS = 0.1
_START_SECONDS = 120.0
_END_SECONDS = 20.0
"""To end after SIGKILL: a process inside a driver that does not answer stays."""
_LOG_TAIL = 4096
_PR_SET_PDEATHSIG = 1


class WorkerEnded(Exception):
    """A worker gave no answer: `reason` in words, `output` the end of its log, `hang` for a limit of time."""

    def __init__(self, reason: str, output: str = "", *, hang: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.output, self.hang = reason, output, hang


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A worker's message: the process that does its present job."""

    pid: int


class WorkerProcess:
    """A child process in a session of its own, which Ctrl-C does not reach, with its output in memory."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: ChildEnvironment,
        options: Sequence[str] = (),
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        """`options` are Python's. Raises ToolchainError when no process can be started."""
        from multiprocessing import Pipe  # noqa: PLC0415 - 5 ms of a build that finds everything

        self._connection, theirs = Pipe()
        self._log = os.memfd_create("aotforge-worker-log")
        self._fork = 0
        words = (*options, "-m", module, str(theirs.fileno()), str(os.getpid()), *arguments)
        try:
            with theirs:
                self.process = start_child(
                    [sys.executable, *words],
                    environment=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    cwd="/",
                    pass_fds=(theirs.fileno(), *pass_fds),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._log)
            self._connection.close()
            raise ToolchainError(
                f"a worker cannot be started: {error.strerror}", hint="free memory or processes"
            ) from error

    @property
    def pid(self) -> int:
        """Process ID."""
        return self.process.pid

    def send(self, message: object) -> None:
        """Sends a message, with an empty log for what it causes. Raises WorkerEnded."""
        self._fork = 0  # the last job's fork has ended, and its number may be another process' by now
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._ended() from error

    def receive(self, seconds: float, *, memory_bytes: int | None = None) -> Any:
        """The next message. Raises WorkerEnded for a worker that ends, or exceeds a limit."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                if self._connection.poll(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))):
                    message = self._connection.recv()
                    if not isinstance(message, Fork):
                        return message
                    self._fork = message.pid
                elif time.monotonic() >= deadline:
                    raise WorkerEnded(f"gave no answer in {seconds:g} s", self.log(), hang=True)
                if memory_bytes is not None and self.memory() > memory_bytes:
                    raise WorkerEnded(f"used more than {memory_bytes / 2**30:.2g} GiB of memory", self.log())
        except (OSError, EOFError) as error:
            raise self._ended() from error

    def memory(self) -> int:
        """Resident bytes now, of the process or of the fork that has the job."""
        return max(resident_bytes(self.pid), resident_bytes(self._fork) if self._fork else 0)

    def kill(self) -> bool:
        """Kills the process and its forks; False when it is still there after a while."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        try:
            self.process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        self._connection.close()  # after the end: another thread may wait for a message
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        return True

    def log(self) -> str:
        """The end of the log."""
        if self._log < 0:
            return ""
        start = max(0, os.fstat(self._log).st_size - _LOG_TAIL)
        return os.pread(self._log, _LOG_TAIL, start).decode("utf-8", "replace").strip("\0\n ")

    def _ended(self) -> WorkerEnded:
        """How a process that closed its connection ended."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerEnded("closed its connection", self.log())
        if code >= 0:
            return WorkerEnded(f"exited with status {code}", self.log())
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        memory = " (out of memory?)" if -code == signal.SIGKILL else ""
        return WorkerEnded(f"died of {name}{memory}", self.log())


class WorkerPool:
    """Workers, one per thread; each is started again after a failure. Linux ends them with their threads.

    `start` makes a process. Limits of a request: `seconds` and resident `memory_bytes`. A worker that keeps
    more than half of the memory does no second job.
    """

    def __init__(
        self, start: Callable[[], WorkerProcess], *, seconds: float, memory_bytes: int | None = None
    ) -> None:
        self._start, self._seconds, self._memory_bytes = start, seconds, memory_bytes
        self._lock = threading.Lock()
        self._workers: dict[int, WorkerProcess] = {}
        self._closed = False

    def request(self, message: object) -> Any:
        """The answer of the calling thread's worker. Raises WorkerEnded; ToolchainError if none starts."""
        try:
            worker = self._sent(message)
            answer = worker.receive(self._seconds, memory_bytes=self._memory_bytes)
        except WorkerEnded:
            self.restart()  # its state may be the reason
            raise
        if self._memory_bytes is not None and worker.memory() > self._memory_bytes // 2:
            self.restart()  # what it keeps would count against the next job
        return answer

    def restart(self) -> None:
        """Ends the calling thread's worker; the next request gets a new one."""
        with self._lock:
            worker = self._workers.pop(threading.get_ident(), None)
        if worker:
            worker.kill()

    def close(self) -> None:
        """Kills every worker, busy ones too."""
        with self._lock:
            self._closed = True
            workers = list(self._workers.values())
            self._workers.clear()
        for worker in workers:
            worker.kill()

    def _sent(self, message: object) -> WorkerProcess:
        with self._lock:
            worker = self._workers.get(threading.get_ident())
        if worker:
            try:
                worker.send(message)
            except WorkerEnded:  # between two jobs
                self.restart()
            else:
                return worker
        worker = self._started()
        worker.send(message)
        return worker

    def _started(self) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise ToolchainError("the work has been stopped")
            worker = self._workers[threading.get_ident()] = self._start()
        try:
            worker.receive(_START_SECONDS)
        except WorkerEnded as ended:
            self.restart()
            raise ToolchainError(
                f"a worker process does not start: it {ended.reason}\n{ended.output}".rstrip(),
                cause="a package cannot be imported in a clean environment",
                hint="./dev doctor; reinstall the pinned environment",
            ) from ended
        return worker


def open_connection(arguments: Sequence[str]) -> tuple[Connection, list[str]]:
    """In a worker: its connection and own arguments. It ends with its parent from now on."""
    from multiprocessing.connection import Connection  # noqa: PLC0415 - only in workers: 5 ms of a no-op build

    die_with_parent(int(arguments[1]))
    return Connection(int(arguments[0])), list(arguments[2:])


def die_with_parent(parent: int) -> None:
    """Has Linux kill this process when the process `parent` ends, in whichever way (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def import_path() -> list[str]:
    """Folders in which this interpreter finds modules, this package's first, for a worker."""
    own = str(Path(__file__).resolve().parents[2])
    return list(dict.fromkeys([own, *(entry for entry in sys.path if entry and Path(entry).is_dir())]))
