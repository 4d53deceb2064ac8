"""Worker processes that judge images: a death or a hang costs the image in hand and nothing else."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from aotforge.errors import AotforgeError, ToolchainError
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.verify.worker import receive, send

_LOG_TAIL = 2000


class Pool:
    """Workers, one per thread that calls `judge`. Closing kills them, also while they work."""

    def __init__(self, *, kernels_root: Path, cache: Path, timeout: float) -> None:
        self._arguments = [str(kernels_root.resolve()), str(cache.resolve()), str(os.getpid())]
        self._timeout = timeout
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._closed = False

    def check(self, task: ImageTask) -> Verdict:
        """Have a task judged; a worker that dies or needs longer than the timeout makes a failed verdict. Raises what a
        worker raised: RulesError, ToolchainError, CacheError.
        """
        worker = self._worker()
        try:
            answer = worker.ask(task, self._timeout)
        except (OSError, EOFError, TimeoutError) as error:
            return Verdict(
                key=task.key,
                label=task.label,
                digest=task.digest,
                outcome="failed",
                resources=task.resources,
                verifier_digest=task.verifier_digest,
                failure=self._bury(worker, error),
            )
        if isinstance(answer, AotforgeError):
            raise answer
        assert isinstance(answer, Verdict)
        return answer

    def close(self) -> None:
        """Kill every worker."""
        with self._lock:
            self._closed = True
            for worker in self._workers.values():
                worker.kill()
            self._workers.clear()

    def _worker(self) -> _Worker:
        me = threading.get_ident()
        with self._lock:
            if self._closed:
                raise ToolchainError("verification has been stopped")
            if me not in self._workers:
                self._workers[me] = _Worker(self._arguments)
            return self._workers[me]

    def _bury(self, worker: _Worker, error: Exception) -> str:
        with self._lock:
            self._workers.pop(threading.get_ident(), None)
        if isinstance(error, TimeoutError):
            worker.kill()
            return f"no verdict after {self._timeout:g} s"
        return worker.death()


class _Worker:
    def __init__(self, arguments: list[str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), *(entry for entry in sys.path if entry)])
        # as many threads as workers already keep every CPU busy
        environment = dict(os.environ, PYTHONPATH=path, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aotforge.verify.worker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the parent only, which then kills its workers
            )
        except OSError as error:
            raise ToolchainError(f"a verification worker cannot be started: {error.strerror}") from error

    def ask(self, task: ImageTask, timeout: float) -> object:
        assert self._process.stdin
        assert self._process.stdout
        self._log.seek(0)
        self._log.truncate()
        send(self._process.stdin, task)
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise TimeoutError
        return receive(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def death(self) -> str:
        """How it ended, in words, and the last of what it said."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        name = signal.Signals(-code).name if -code in signal.valid_signals() else ""
        how = f"died of {name}" if name else f"exited with status {code}"
        self._log.seek(0)
        said = self._log.read()[-_LOG_TAIL:].decode("utf-8", "replace").strip()
        return f"the process that executed the image {how}" + (f": {said}" if said else "")
