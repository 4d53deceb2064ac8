"""Pool of worker processes that check images: a crash or a timeout fails one image and no other."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path

from aotforge.compile.pool import WorkerProcess, import_path
from aotforge.errors import AotforgeError, ToolchainError
from aotforge.verify.verdict import ImageTask, Verdict


class Pool:
    """Workers, one per thread that calls `check`. Closing kills them, busy ones too."""

    def __init__(self, *, kernels_root: Path, cache: Path, timeout: float) -> None:
        self._arguments = [str(kernels_root.resolve()), str(cache.resolve()), str(os.getpid())]
        self._timeout = timeout
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._closed = False

    def check(self, task: ImageTask) -> Verdict:
        """Have an image checked; a worker that crashes or exceeds the timeout makes a failed verdict.

        Raises what the worker raised: RulesError, ToolchainError, CacheError.
        """
        worker = self._worker()
        try:
            answer = worker.run(task, self._timeout)
        except (OSError, EOFError) as error:
            with self._lock:
                self._workers.pop(threading.get_ident(), None)
            if isinstance(error, TimeoutError):
                worker.kill()
                return Verdict.failed(task, f"no verdict after {self._timeout:g} s")
            return Verdict.failed(task, worker.crash())
        if isinstance(answer, AotforgeError):
            raise answer
        assert isinstance(answer, Verdict)
        if answer.device and answer.faults:  # a device executes nothing more for this process
            with self._lock:
                self._workers.pop(threading.get_ident(), None)
            worker.kill()
        return answer

    def close(self) -> None:
        """Kill every worker."""
        with self._lock:
            self._closed = True
            for worker in self._workers.values():
                worker.kill()
            self._workers.clear()

    def _worker(self) -> _Worker:
        thread = threading.get_ident()
        with self._lock:
            if self._closed:
                raise ToolchainError("verification has been stopped")
            if thread not in self._workers:
                self._workers[thread] = _Worker(self._arguments)
            return self._workers[thread]


class _Worker(WorkerProcess):
    def __init__(self, arguments: list[str]) -> None:
        path = os.pathsep.join(import_path())
        self._connection, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "aotforge.verify.check_image", *arguments, str(theirs.fileno())]
            fds = (theirs.fileno(),)
            super().__init__("verification worker", command, environment={"PYTHONPATH": path}, pass_fds=fds)

    def run(self, task: ImageTask, timeout: float) -> object:
        self.clear_log()
        self._connection.send(task)
        if not self._connection.poll(timeout):
            raise TimeoutError
        return self._connection.recv()

    def crash(self) -> str:
        """The exit status, and the end of the worker's output."""
        how, output = self.death(), self.log()
        self.kill()
        return f"the process that executed the image {how}" + (f": {output}" if output else "")
