"""Pool of worker processes that check images: a crash or a timeout fails one image and no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from aotforge.base.child_processes import ChildEnvironment, fixed_environment
from aotforge.base.workers import READY, WorkerEnded, WorkerPool, WorkerProcess, import_path
from aotforge.errors import AotforgeError
from aotforge.verify.verdict import ImageTask, Verdict

T = TypeVar("T")


class Pool(WorkerPool):
    """Workers, one per thread that calls `check`, with `libraries`: interpreters by lanes of a wave."""

    def __init__(
        self,
        *,
        kernels_root: Path,
        cache: Path,
        timeout: float,
        libraries: Mapping[int, Path] | None = None,
    ) -> None:
        words = [str(kernels_root.resolve()), str(cache.resolve())]
        words += [f"{lanes}={path}" for lanes, path in (libraries or {}).items()]
        super().__init__(
            lambda: WorkerProcess("aotforge.verify.check_image", words, environment=reader_environment()),
            seconds=timeout,
        )

    def check(self, task: ImageTask) -> Verdict:
        """The verdict, failed for a crash or timeout. Raises RulesError, ToolchainError, CacheError."""
        try:
            answer: Verdict | AotforgeError = self.request(task)
        except WorkerEnded as ended:
            if ended.hang:
                return Verdict.failed(task, f"no verdict after {self._seconds:g} s")
            why = f"the process that executed the image {ended.reason}"
            return Verdict.failed(task, why + (f": {ended.output}" if ended.output else ""))
        if isinstance(answer, AotforgeError):
            raise answer
        if answer.device and answer.faults:  # a device executes nothing more for this process
            self.restart()
        return answer


def each(
    pool: WorkerPool, check: Callable[[ImageTask], T], tasks: Sequence[ImageTask], jobs: int | None
) -> Iterator[T]:
    """Results as they are ready, of `jobs` threads (default: one per CPU). Closes the pool."""
    threads = ThreadPoolExecutor(min(jobs or len(os.sched_getaffinity(0)), len(tasks)))
    try:
        for future in as_completed([threads.submit(check, task) for task in tasks]):
            yield future.result()
    finally:  # Ctrl-C, or an error: the others do not continue
        pool.close()
        threads.shutdown(cancel_futures=True)


def serve(connection: Connection, answer: Callable[[Any], object]) -> None:
    """In a worker: answers tasks, or sends the error, until the connection closes."""
    connection.send(READY)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            found = answer(task)
        except AotforgeError as error:
            found = error
        connection.send(found)


def reader_environment() -> ChildEnvironment:
    """Of processes that read or execute images: without the user's settings."""
    values = {
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        # as many threads as workers already keep every CPU busy
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(import_path()),
    }
    return fixed_environment(values, "PATH", "TMPDIR", "CC", "LD_LIBRARY_PATH")
