"""Pool of worker processes that check images: a crash or a timeout fails one image and no other."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import AotforgeError, ToolchainError
from aotforge.verify.answers import read_answer
from aotforge.verify.reader_process import ReaderProcess
from aotforge.verify.verdict import ImageTask, Verdict

_ANSWER_LIMIT = 1 << 20
"""Bytes of an answer: of the largest, most are texts that the image printed."""


class Pool:
    """Workers, one per thread that calls `check`. Closing kills them, busy ones too. `libraries` are interpreters by lanes of a
    wave, which workers load without looking in the cache."""

    def __init__(
        self,
        *,
        kernels_root: Path,
        cache: Path,
        timeout: float,
        libraries: Mapping[int, Path] | None = None,
    ) -> None:
        self._kernels, self._cache = kernels_root.resolve(), cache.resolve()
        self._timeout, self._libraries = timeout, libraries or {}
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._closed = False

    def check(self, task: ImageTask) -> Verdict:
        """Have an image checked; a worker that crashes or exceeds the timeout makes a failed verdict.

        Raises what the worker raised: RulesError, ToolchainError, CacheError; ToolchainError for one that does not start.
        """
        worker = self._worker()
        try:
            answer = worker.run(task, self._timeout)
        except (OSError, EOFError, ValueError) as error:
            with self._lock:
                self._workers.pop(threading.get_ident(), None)
            why = f"the process that executed the image sent {error}"
            if isinstance(error, TimeoutError):
                why = f"no verdict after {self._timeout:g} s"
            elif not isinstance(error, ValueError):
                why = worker.crash()
            worker.kill()
            return Verdict.failed(task, why)
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
                self._workers[thread] = _Worker(self._kernels, self._cache, self._libraries)
            return self._workers[thread]


class _Worker(ReaderProcess):
    def __init__(self, kernels: Path, cache: Path, libraries: Mapping[int, Path]) -> None:
        super().__init__(
            "aotforge.verify.check_image",
            [str(kernels), str(cache)],
            [f"{lanes}={path}" for lanes, path in libraries.items()],
        )

    def run(self, task: ImageTask, timeout: float) -> Verdict | AotforgeError:
        self.clear_log()
        return read_answer(self.exchange(task, seconds=timeout, most=_ANSWER_LIMIT), task)

    def crash(self) -> str:
        """The exit status, and the end of the worker's output."""
        how, output = self.death(), self.log()
        self.kill()
        return f"the process that executed the image {how}" + (f": {output}" if output else "")
