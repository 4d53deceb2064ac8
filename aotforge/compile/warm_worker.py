"""A compile worker that is kept between jobs, for processes that receive jobs one at a time."""

from __future__ import annotations

import select
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotforge.compile.pool import Worker, WorkerLimits
from aotforge.compile.scheduler import POLL_SECONDS
from aotforge.errors import CacheError, ToolchainError
from aotforge.plan.model import CompileJob


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The end of one attempt: the encoded entry in `data`, or the reason in `failure` and the end of the worker's `output`."""

    data: bytes = b""
    failure: str = ""
    output: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


@dataclass
class WarmWorker:
    """Compiles jobs of one toolchain in a process that is started again after every failure. One thread at a time may compile."""

    kernels_root: Path
    allocator: Path
    temporary: Path
    limits: WorkerLimits
    _worker: Worker | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compile(self, job: CompileJob) -> Attempt:
        """One attempt. Raises ToolchainError for a worker that does not start, CacheError for a folder that it cannot write to."""
        with self._lock:
            worker = self._send(job)
            while not (attempt := self._poll(worker)):
                pass
            if attempt.failure or worker.memory() > self.limits.memory_bytes // 2:
                self._stop()  # its state may be the reason, or what it keeps would count against the next job
            return attempt

    def close(self, *, wait: bool = True) -> None:
        """Ends the process; without `wait` only one that has no job."""
        if self._lock.acquire(blocking=wait):
            try:
                self._stop()
            finally:
                self._lock.release()

    def _send(self, job: CompileJob) -> Worker:
        if self._worker is not None:
            try:
                self._worker.send(job)
            except OSError:  # it ended between two jobs
                self._stop()
            else:
                return self._worker
        worker = self._start(job)
        try:
            worker.send(job)
        except OSError as error:
            raise self._not_started(worker.death()) from error
        return worker

    def _start(self, job: CompileJob) -> Worker:
        worker = self._worker = Worker(
            self.kernels_root, job.toolchain.environment, self.temporary, self.allocator
        )
        deadline = worker.since + self.limits.start_seconds
        while time.monotonic() < deadline:
            select.select([worker], [], [], POLL_SECONDS)
            messages, connected = worker.receive()
            if any("ready" in message for message, _ in messages):
                return worker
            if not connected:
                raise self._not_started(worker.death())
        raise self._not_started(f"did not start in {self.limits.start_seconds:g} s")

    def _poll(self, worker: Worker) -> Attempt | None:
        """The end of the job, if it has come."""
        select.select([worker], [], [], POLL_SECONDS)
        messages, connected = worker.receive()
        seconds = time.monotonic() - worker.since
        if messages:
            return _attempt(*messages[0], worker.log(), seconds)
        if not connected:
            return Attempt(failure=worker.death(), output=worker.log(), seconds=seconds)
        if seconds > self.limits.job_seconds:
            return Attempt(failure=f"no answer in {self.limits.job_seconds:g} s", seconds=seconds)
        if worker.memory() > self.limits.memory_bytes:
            used = f"used more than {self.limits.memory_bytes / 2**30:.2g} GiB of memory"
            return Attempt(failure=used, seconds=seconds)
        return None

    def _not_started(self, reason: str) -> ToolchainError:
        log = self._worker.log() if self._worker else ""
        self._stop()
        return ToolchainError(
            f"the compile worker does not start: {reason}\n{log}".rstrip(),
            cause="Triton cannot be imported in a clean environment",
            hint="reinstall the pinned environment",
        )

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def _attempt(message: dict[str, Any], payload: bytes, log: str, seconds: float) -> Attempt:
    if message.get("storage"):
        raise CacheError(
            f"a worker cannot write its temporary files: {message['storage']}",
            hint="free space on the cache's file system, or choose another cache folder",
        )
    if "error" in message:
        output = "\n".join(filter(None, (str(message["trace"]), log)))
        return Attempt(failure=str(message["error"]), output=output, seconds=seconds)
    return Attempt(data=payload, seconds=seconds, peak_bytes=int(message["peak_kib"]) * 1024)
