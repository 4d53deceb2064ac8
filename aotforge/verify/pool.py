"""Pool of worker processes that check images: a crash or a timeout fails one image and no other.

Answers are read as those of strangers: an image may have taken over its worker, which a sandbox confines.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path

from aotforge.compile.pool import WorkerProcess, import_path, readable_by_python
from aotforge.errors import AotforgeError, ToolchainError
from aotforge.sandbox.release_programs import ReleasePrograms
from aotforge.verify.answers import read_answer
from aotforge.verify.verdict import ImageTask, Verdict

_ANSWER_LIMIT = 1 << 24
"""Bytes of an answer: of the largest, most are texts that the image printed."""
UNCONFINED = ReleasePrograms(sandbox=())


class Pool:
    """Workers, one per thread that calls `check`, run by `programs`. Closing kills them, busy ones too.

    In a sandbox a worker finds the interpreter in the cache and stores nothing there.
    """

    def __init__(
        self, *, kernels_root: Path, cache: Path, timeout: float, programs: ReleasePrograms = UNCONFINED
    ) -> None:
        self._kernels, self._cache = kernels_root.resolve(), cache.resolve()
        self._timeout, self._programs = timeout, programs
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
                self._workers[thread] = _Worker(self._kernels, self._cache, self._programs)
            return self._workers[thread]


class _Worker(WorkerProcess):
    def __init__(self, kernels: Path, cache: Path, programs: ReleasePrograms) -> None:
        path = os.pathsep.join(import_path())
        parent = 1 if programs.sandbox else os.getpid()
        readable: Sequence[Path] = ()
        if programs.sandbox:
            readable = [*readable_by_python(), kernels, *cache.glob("emulator-*")]
        self._connection, theirs = Pipe()
        with theirs:
            words = [str(kernels), str(cache), str(parent), str(theirs.fileno())]
            super().__init__(
                "verification worker",
                [sys.executable, "-m", "aotforge.verify.check_image", *words],
                environment={"PYTHONPATH": path},
                pass_fds=(theirs.fileno(),),
                programs=programs,
                readable=readable,
            )

    def run(self, task: ImageTask, timeout: float) -> Verdict | AotforgeError:
        self.clear_log()
        self._connection.send(task)
        if not self._connection.poll(timeout):
            raise TimeoutError
        return read_answer(self._connection.recv_bytes(_ANSWER_LIMIT), task)

    def crash(self) -> str:
        """The exit status, and the end of the worker's output."""
        how, output = self.death(), self.log()
        self.kill()
        return f"the process that executed the image {how}" + (f": {output}" if output else "")
