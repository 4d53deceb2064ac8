"""Pool of worker processes that check images: a crash or a timeout fails one image and no other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.child_processes import ChildEnvironment, fixed_environment
from aotforge.base.workers import WorkerEnded, WorkerPool, WorkerProcess, import_path
from aotforge.errors import AotforgeError
from aotforge.verify.verdict import ImageTask, Verdict


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
