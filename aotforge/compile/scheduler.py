"""The build loop: missing jobs to workers, answers to the cache, trouble to a second try and then to the report.

One thread, so that workers die with it (PR_SET_PDEATHSIG goes by thread) and nothing needs a lock.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aotforge.compile.cache_entry import Entry, EntryError, Summary, decode
from aotforge.compile.pool import Worker
from aotforge.compile.worker_limits import Limits
from aotforge.errors import CacheError, ToolchainError
from aotforge.plan.model import CompileJob, JobKey

ATTEMPTS = 2
_POLL_SECONDS = 0.1
_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A job that failed for good: the reason in a line or two, and the last of its output."""

    job: CompileJob
    reason: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One job's news for the caller: a summary when it is done, else why there will be another try or none."""

    kind: str
    job: CompileJob
    summary: Summary | None = None
    detail: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


def cost(job: CompileJob) -> float:
    """Rough order of compile time: tile sizes multiply the code that is generated, as do unrolled stages."""
    sizes = [
        value
        for _, value in job.constants
        if isinstance(value, int) and not isinstance(value, bool) and value > 1
    ]
    return math.prod(sizes) / dict(job.options)["num_warps"]


class Store(Protocol):
    """Where finished images go: `Cache` here, the way out in a container."""

    def acquire(self, key: JobKey) -> bool:
        """Take the right to make an entry; False while somebody else has it."""

    def release(self, key: JobKey) -> None:
        """Give the right back."""

    def load(self, key: JobKey) -> Entry | None:
        """An entry that somebody has made meanwhile. Raises EntryError."""

    def store(self, key: JobKey, data: bytes) -> None:
        """Put an encoded entry in place."""

    def temporary(self) -> Path:
        """A folder for workers' files."""


class Scheduler:
    """Compiles `jobs` (one or more, of one toolchain) with at most `count` workers; `report` hears of every job as it ends."""

    def __init__(
        self,
        jobs: list[CompileJob],
        *,
        cache: Store,
        allocator: Path,
        kernels_root: Path,
        count: int,
        limits: Limits,
        report: Callable[[Outcome], None],
    ) -> None:
        # longest first, so that no long job starts when the others are done; the sort is stable, the order known
        self._environment = jobs[0].toolchain.environment
        self._waiting = sorted(jobs, key=cost, reverse=True)
        self._contended: list[CompileJob] = []
        self._tries: dict[JobKey, int] = {}
        self._cache = cache
        self._allocator = allocator
        self._root = kernels_root
        self._count = count
        self._limits = limits
        self._report = report
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._failed_starts = 0
        self.failures: list[Failure] = []

    def run(self) -> None:
        """Work until every job is done or failed. Raises CacheError, ToolchainError; kills its workers in any case."""
        try:
            while self._waiting or self._contended or any(worker.job for worker in self._workers):
                self._assign()
                for key, _ in self._selector.select(_POLL_SECONDS):
                    self._listen(key.data)
                self._enforce()
        finally:
            for worker in self._workers:
                worker.kill()
            self._selector.close()

    def _assign(self) -> None:
        for worker in list(self._workers):
            if worker.ready and worker.job is None and (job := self._take()) is not None:
                try:
                    worker.send(job)
                except OSError:  # died between two jobs: the job goes to another one
                    self._cache.release(job.key)
                    self._waiting.insert(0, job)
                    self._remove(worker)
        starting = sum(not worker.ready for worker in self._workers)
        while len(self._workers) < self._count and starting < len(self._waiting) + len(self._contended):
            worker = Worker(self._root, self._environment, self._cache.temporary(), self._allocator)
            self._workers.append(worker)
            self._selector.register(worker, selectors.EVENT_READ, worker)
            starting += 1

    def _take(self) -> CompileJob | None:
        """The next job that no other build is at, its lock taken and the cache looked at once more."""
        busy = []
        found = None
        for queue in (self._contended, self._waiting):
            while queue and found is None:
                job = queue.pop(0)
                if not self._cache.acquire(job.key):
                    busy.append(job)
                elif (entry := self._load(job)) is not None:
                    self._cache.release(job.key)
                    self._report(Outcome(kind="shared", job=job, summary=entry.summary))
                else:
                    found = job
        self._contended.extend(busy)
        return found

    def _load(self, job: CompileJob) -> Entry | None:
        try:
            return self._cache.load(job.key)
        except EntryError:
            return None

    def _listen(self, worker: Worker) -> None:
        messages, connected = worker.receive()
        for message, payload in messages:
            if "ready" in message:
                worker.ready = True
                self._failed_starts = 0
            else:
                self._answered(worker, message, payload)
        if not connected and worker in self._workers:
            self._lost(worker, worker.death())

    def _answered(self, worker: Worker, message: dict[str, Any], payload: bytes) -> None:
        job = worker.job
        if job is None:
            return
        if message.get("storage"):
            raise CacheError(
                f"a worker cannot write its temporary files: {message['storage']}",
                hint="free space on the cache's file system, or choose another cache folder",
            )
        if "error" in message:
            # a fresh worker for the second try: this one's state may be the reason
            self._remove(worker, close=False)
            self._failed(
                job, str(message["error"]), "\n".join(filter(None, (str(message["trace"]), worker.log())))
            )
            worker.kill()
            return
        seconds = time.monotonic() - worker.since
        worker.job = None
        try:
            summary = decode(payload, job.key).summary
        except EntryError as error:
            self._failed(job, f"the worker's answer is damaged: {error}", "")
            return
        self._cache.store(job.key, payload)
        self._cache.release(job.key)
        peak = int(message["peak_kib"]) * 1024
        self._report(Outcome(kind="compiled", job=job, summary=summary, seconds=seconds, peak_bytes=peak))
        if worker.memory() > self._limits.memory_bytes // 2:
            self._remove(worker)  # what it has kept would count against the next job

    def _enforce(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            allowed = self._limits.job_seconds if worker.ready else self._limits.start_seconds
            if (worker.job or not worker.ready) and now - worker.since > allowed:
                self._lost(
                    worker,
                    f"no answer in {allowed:g} s" if worker.ready else f"did not start in {allowed:g} s",
                )
            elif worker.job and worker.memory() > self._limits.memory_bytes:
                self._lost(worker, f"used more than {self._limits.memory_bytes / 2**30:.2g} GiB of memory")

    def _lost(self, worker: Worker, reason: str) -> None:
        job, log = worker.job, worker.log()
        started = worker.ready
        self._remove(worker)
        if job is not None:
            self._failed(job, reason, log)
        elif not started:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                raise ToolchainError(
                    f"compile workers do not start: {reason}\n{log}".rstrip(),
                    cause="Triton cannot be imported in a clean environment",
                    hint="reinstall the pinned environment",
                )

    def _failed(self, job: CompileJob, reason: str, output: str) -> None:
        self._cache.release(job.key)
        self._tries[job.key] = self._tries.get(job.key, 0) + 1
        if self._tries[job.key] < ATTEMPTS:
            self._waiting.append(job)
            self._report(Outcome(kind="retry", job=job, detail=reason))
        else:
            self.failures.append(Failure(job=job, reason=reason, output=output))
            self._report(Outcome(kind="failed", job=job, detail=reason))

    def _remove(self, worker: Worker, *, close: bool = True) -> None:
        self._workers.remove(worker)
        with suppress(KeyError, ValueError):
            self._selector.unregister(worker)
        if close:
            worker.kill()
