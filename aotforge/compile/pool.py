"""Compile workers seen from their parent: number, limits, environment, attempts, messages."""

import json
import os
import time
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import ChildEnvironment, fixed_environment
from aotforge.base.machine import GIB, available_cpus, available_memory
from aotforge.base.workers import WorkerEnded, WorkerPool, WorkerProcess, import_path
from aotforge.errors import CacheError
from aotforge.plan.model import CompileJob


def frame(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """A message with bytes as one line of JSON."""
    return json.dumps({**message, "payload": b64encode(payload).decode()}).encode("ascii") + b"\n"


def read_frame(line: bytes) -> tuple[dict[str, Any], bytes]:
    """The message of a line and its bytes. Raises ValueError, LookupError, TypeError for another line."""
    message = json.loads(line)
    return message, b64decode(message.pop("payload"))


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """Per worker: seconds of wall time per job, bytes of resident memory."""

    job_seconds: float = 600.0
    memory_bytes: int = 3 * GIB // 2


def worker_count(jobs: int, limits: WorkerLimits, *, wanted: int | None = None) -> int:
    """`wanted` workers or one per CPU, bounded by free memory and by the jobs; at least 1."""
    by_memory = available_memory() // limits.memory_bytes
    return max(1, min(wanted or available_cpus(), by_memory, jobs))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The end of an attempt: the encoded entry, or the `failure` and the worker's `output`."""

    data: bytes = b""
    failure: str = ""
    output: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


class CompileWorkers:
    """Compiles jobs of one toolchain in worker processes, one per thread."""

    def __init__(
        self,
        *,
        kernels_root: Path,
        allocator: Path,
        temporary: Path,
        limits: WorkerLimits,
        packages: Path | None = None,
    ) -> None:
        """`allocator`: library of aotforge.toolchain.allocator; `packages`: a folder with another Triton."""
        self._kernels_root, self._allocator, self._temporary = kernels_root.resolve(), allocator, temporary
        self._packages = packages
        self._environment: tuple[tuple[str, str], ...] = ()
        self.limits = limits
        self._pool = WorkerPool(self._start, seconds=limits.job_seconds, memory_bytes=limits.memory_bytes)

    def compile(self, job: CompileJob) -> Attempt:
        """One attempt. Raises ToolchainError when no worker starts, CacheError for a full folder."""
        began = time.monotonic()
        self._environment = job.toolchain.environment
        try:
            answer: Attempt | CacheError = self._pool.request(asdict(job))
        except WorkerEnded as ended:
            seconds = time.monotonic() - began
            return Attempt(failure=f"the worker {ended.reason}", output=ended.output, seconds=seconds)
        if isinstance(answer, CacheError):
            raise answer
        if answer.failure:
            self._pool.restart()  # a fresh worker for the second try: this one's state may be the reason
        return answer

    def close(self) -> None:
        """Kills every worker."""
        self._pool.close()

    def _start(self) -> WorkerProcess:
        try:
            # the loader takes no path with spaces or colons in it, but /proc/self/fd it does
            with self._allocator.open("rb") as library:
                preload = f"/proc/self/fd/{library.fileno()}"
                return WorkerProcess(
                    f"{__package__}.worker",
                    [str(self._kernels_root)],
                    environment=worker_environment(
                        self._environment, self._temporary, preload=preload, packages=self._packages
                    ),
                    options=("-s", "-P"),
                    pass_fds=(library.fileno(),),
                )
        except OSError as error:
            what = f"the compile workers' allocator {self._allocator}: {error.strerror}"
            raise CacheError(what, hint="build again: it is compiled anew") from error


def worker_environment(
    pinned: tuple[tuple[str, str], ...],
    temporary: Path,
    *,
    preload: str = "",
    packages: Path | None = None,
) -> ChildEnvironment:
    """The complete environment of a worker: only how to load libraries is the caller's.

    `preload` is the allocator's path as the worker sees it, without spaces and colons; empty for other
    programs. `packages` is searched for modules before what is installed.
    """
    fixed = {
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # backends of other packages must not take part: the job key does not cover them
        "TRITON_BACKENDS_IN_TREE": "1",
        "TZ": "UTC",
    }
    own_modules, *installed = import_path()
    found = [own_modules, *([str(packages)] if packages else []), *installed]
    own = {"PYTHONPATH": os.pathsep.join(found), "TMPDIR": str(temporary)}
    if preload:
        own["LD_PRELOAD"] = preload
    return fixed_environment(fixed | own | dict(pinned), "LD_LIBRARY_PATH")
