"""The build loop: sends missing jobs to workers, stores results, retries failures once.

Threads wait for workers; claims, results and reports are those of one thread.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache_entry import Entry, Summary, decode
from aotforge.compile.model import EventKind
from aotforge.compile.pool import Attempt, CompileWorkers, WorkerLimits, worker_count
from aotforge.plan.model import CompileJob, JobKey

ATTEMPTS = 2
POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of an attempt at a job: the image's `summary`, or the reason and the end of its output."""

    kind: EventKind
    job: CompileJob
    summary: Summary | None = None
    detail: str = ""
    output: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


def cost(job: CompileJob) -> float:
    """Rough order of compile time: sizes of a tile (BLOCK_*) multiply the code that is generated, and so does
    its depth.

    The depth is the smallest other size: a wide row is walked in pieces, whose code is there once.
    """
    sizes = {name: value for name, value in job.constants if type(value) is int and value > 1}
    tile = [value for name, value in sizes.items() if name.startswith("BLOCK")]
    depth = min((value for name, value in sizes.items() if not name.startswith("BLOCK")), default=1)
    return math.prod(tile) * depth / int(dict(job.options).get("num_warps", 1))


def longest_first(jobs: Iterable[CompileJob]) -> list[CompileJob]:
    """Jobs by falling cost, so that no long job starts when the others are done; the sort is stable."""
    return sorted(jobs, key=cost, reverse=True)


class ImageStore(Protocol):
    """Destination of finished images: `Cache` on the host, `StreamingStore` in a container."""

    def acquire(self, key: JobKey) -> bool:
        """Lock an entry; False while another build holds the lock."""

    def release(self, key: JobKey) -> None:
        """Unlock an entry."""

    def load(self, key: JobKey) -> Entry | None:
        """An entry, if another build has stored it. Raises DamagedObjectError."""

    def store(self, key: JobKey, data: bytes) -> None:
        """Store an encoded entry."""

    def temporary(self) -> Path:
        """A folder for workers' files."""


@dataclass(frozen=True, kw_only=True)
class CompileSettings:
    """Settings of a scheduler: at most `workers` workers, or one per CPU; `report` receives every outcome.

    `packages`: a folder with another Triton than the installed one.
    """

    store: ImageStore
    allocator: Path
    kernels_root: Path
    workers: int | None
    limits: WorkerLimits
    report: Callable[[Outcome], None]
    packages: Path | None = None

    def claim(self, job: CompileJob) -> Literal["claimed", "finished", "locked"]:
        """Lock a job's entry, unless another build is compiling it, or has finished it, which is reported."""
        if not self.store.acquire(job.key):
            return "locked"
        try:
            entry = self.store.load(job.key)
        except DamagedObjectError:
            entry = None
        if entry is None:
            return "claimed"
        self.store.release(job.key)
        self.report(Outcome(kind="shared", job=job, summary=entry.summary))
        return "finished"

    def finish(self, job: CompileJob, attempt: Attempt) -> str:
        """Unlocks the entry, stored and reported if there is an image; else why there is none. CacheError."""
        try:
            if not attempt.failure:
                summary = decode(attempt.data, job.key).summary
                self.store.store(job.key, attempt.data)
        except DamagedObjectError as error:
            return f"the worker's result is damaged: {error}"
        finally:
            self.store.release(job.key)
        if not attempt.failure:
            seconds, peak = attempt.seconds, attempt.peak_bytes
            self.report(Outcome(kind="compiled", job=job, summary=summary, seconds=seconds, peak_bytes=peak))
        return attempt.failure


@dataclass
class JobRunner(ABC):
    """Compiles `jobs` (one or more, of one toolchain). `failures` are those that failed twice."""

    jobs: list[CompileJob]
    settings: CompileSettings
    failures: list[Outcome] = field(default_factory=list)

    @abstractmethod
    def run(self) -> None:
        """Works until every job is done or failed. Raises CacheError, ToolchainError."""

    def _fail(self, job: CompileJob, detail: str, output: str) -> None:
        self.failures.append(Outcome(kind="failed", job=job, detail=detail, output=output))
        self.settings.report(self.failures[-1])


@dataclass
class BatchScheduler(JobRunner):
    """In batches elsewhere: always all that no other build has locked."""

    _claimed: dict[JobKey, CompileJob] = field(default_factory=dict)

    def run(self) -> None:
        """Waits for jobs that other builds are compiling; what is finished stays in the cache."""
        waiting = longest_first(self.jobs)
        while waiting:
            states = [(job, self.settings.claim(job)) for job in waiting]
            waiting = [job for job, state in states if state == "locked"]
            self._claimed = {job.key: job for job, state in states if state == "claimed"}
            try:
                if self._claimed:
                    self._compile()
                elif waiting:
                    time.sleep(POLL_SECONDS)
            finally:
                for key in self._claimed:
                    self.settings.store.release(key)

    @abstractmethod
    def _compile(self) -> None:
        """Compiles `_claimed`, and removes from it what is finished."""


@dataclass
class Scheduler(JobRunner):
    """In workers on this machine, which end with it."""

    _waiting: list[CompileJob] = field(default_factory=list)
    _tries: dict[JobKey, int] = field(default_factory=dict)

    def run(self) -> None:
        """As `JobRunner.run`."""
        settings = self.settings
        count = worker_count(len(self.jobs), settings.limits, wanted=settings.workers)
        self._waiting = longest_first(self.jobs)
        workers = CompileWorkers(
            kernels_root=settings.kernels_root,
            allocator=settings.allocator,
            temporary=settings.store.temporary(),
            limits=settings.limits,
            packages=settings.packages,
        )
        threads = ThreadPoolExecutor(count)
        running: dict[Future[Attempt], CompileJob] = {}
        try:
            while self._waiting or running:
                while len(running) < count and (job := self._claim_next()):
                    running[threads.submit(workers.compile, job)] = job
                # what another build has locked is looked at again
                done, _ = wait(running, POLL_SECONDS if self._waiting else None, FIRST_COMPLETED)
                for future in done:
                    self._finish(running.pop(future), future.result())
        finally:
            workers.close()
            threads.shutdown(cancel_futures=True)

    def _claim_next(self) -> CompileJob | None:
        """The next job, its entry locked; those that other builds compile are tried again first."""
        locked: list[CompileJob] = []
        try:
            while self._waiting:
                job = self._waiting.pop(0)
                if (state := self.settings.claim(job)) == "claimed":
                    return job
                locked += [job] * (state == "locked")
            return None
        finally:
            self._waiting[:0] = locked

    def _finish(self, job: CompileJob, attempt: Attempt) -> None:
        if not (failure := self.settings.finish(job, attempt)):
            return
        self._tries[job.key] = self._tries.get(job.key, 0) + 1
        if self._tries[job.key] < ATTEMPTS:
            self._waiting.append(job)
            self.settings.report(Outcome(kind="retry", job=job, detail=failure))
        else:
            self._fail(job, failure, attempt.output)
