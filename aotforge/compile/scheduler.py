"""The build loop: sends missing jobs to workers, stores results, retries failures once.

One thread, so that workers exit with it (PR_SET_PDEATHSIG goes by thread) and nothing needs a lock.
"""

import math
import selectors
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache_entry import Entry, Summary, decode
from aotforge.compile.model import EventKind
from aotforge.compile.pool import Worker, WorkerLimits, worker_count
from aotforge.errors import CacheError, ToolchainError
from aotforge.plan.model import CompileJob, JobKey

ATTEMPTS = 2
POLL_SECONDS = 0.1
_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one attempt at a job: the `summary` of its image, or the reason in `detail` and the end of its `output`."""

    kind: EventKind
    job: CompileJob
    summary: Summary | None = None
    detail: str = ""
    output: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


def cost(job: CompileJob) -> float:
    """Rough order of compile time: the sizes of a tile (BLOCK_*) multiply the code that is generated, and so does its depth.

    The depth is the smallest other size: a wide row is walked in pieces, whose code is there once.
    """
    sizes = {name: value for name, value in job.constants if type(value) is int and value > 1}
    tile = [value for name, value in sizes.items() if name.startswith("BLOCK")]
    depth = min((value for name, value in sizes.items() if not name.startswith("BLOCK")), default=1)
    return math.prod(tile) * depth / int(dict(job.options).get("num_warps", 1))


def longest_first(jobs: Iterable[CompileJob]) -> list[CompileJob]:
    """Jobs by falling cost, so that no long job starts when the others are done; the sort is stable, the order known."""
    return sorted(jobs, key=cost, reverse=True)


class Store(Protocol):
    """Destination of finished images: `Cache` on the host, `StreamingStore` in a container."""

    def acquire(self, key: JobKey) -> bool:
        """Lock an entry; False while another build holds the lock."""

    def release(self, key: JobKey) -> None:
        """Unlock an entry."""

    def load(self, key: JobKey) -> Entry | None:
        """An entry, if another build has stored it meanwhile. Raises DamagedObjectError."""

    def store(self, key: JobKey, data: bytes) -> None:
        """Store an encoded entry."""

    def temporary(self) -> Path:
        """A folder for workers' files."""


@dataclass(frozen=True, kw_only=True)
class CompileSettings:
    """Settings of a scheduler: at most `workers` workers, or as many as there are CPUs; `report` receives every outcome."""

    store: Store
    allocator: Path
    kernels_root: Path
    workers: int | None
    limits: WorkerLimits
    report: Callable[[Outcome], None]

    def claim(self, job: CompileJob) -> Literal["claimed", "finished", "locked"]:
        """Lock a job's entry, unless another build is compiling it or has finished it meanwhile, which is reported."""
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

    def finish(self, job: CompileJob, data: bytes, *, seconds: float, peak_bytes: int) -> None:
        """Store, unlock and report a compiled entry. Raises DamagedObjectError when it is damaged, CacheError."""
        summary = decode(data, job.key).summary
        self.store.store(job.key, data)
        self.store.release(job.key)
        self.report(
            Outcome(kind="compiled", job=job, summary=summary, seconds=seconds, peak_bytes=peak_bytes)
        )


@dataclass
class Scheduler:
    """Compiles `jobs` (one or more, of one toolchain) in workers on this machine."""

    jobs: list[CompileJob]
    settings: CompileSettings
    failures: list[Outcome] = field(default_factory=list)
    _locked_elsewhere: list[CompileJob] = field(default_factory=list)
    _tries: dict[JobKey, int] = field(default_factory=dict)
    _workers: list[Worker] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _failed_starts: int = 0

    def __post_init__(self) -> None:
        self._environment = self.jobs[0].toolchain.environment
        self._waiting = longest_first(self.jobs)
        self._count = worker_count(len(self.jobs), self.settings.limits, wanted=self.settings.workers)

    def run(self) -> None:
        """Work until every job is done or failed. Raises CacheError, ToolchainError; kills its workers in any case."""
        try:
            while self._waiting or self._locked_elsewhere or any(worker.job for worker in self._workers):
                self._assign_jobs()
                self._start_workers()
                for key, _ in self._selector.select(POLL_SECONDS):
                    self._receive(key.data)
                self._enforce_limits()
        finally:
            for worker in self._workers:
                worker.kill()
            self._selector.close()

    def _assign_jobs(self) -> None:
        for worker in list(self._workers):
            if worker.ready and worker.job is None and (job := self._claim_next()) is not None:
                try:
                    worker.send(job)
                except OSError:  # the worker ended between two jobs: another one gets the job
                    self.settings.store.release(job.key)
                    self._waiting.insert(0, job)
                    self._remove(worker).kill()

    def _start_workers(self) -> None:
        settings = self.settings
        starting = sum(not worker.ready for worker in self._workers)
        unassigned = len(self._waiting) + len(self._locked_elsewhere)
        for _ in range(min(self._count - len(self._workers), unassigned - starting)):
            worker = Worker(
                settings.kernels_root, self._environment, settings.store.temporary(), settings.allocator
            )
            self._workers.append(worker)
            self._selector.register(worker, selectors.EVENT_READ, worker)

    def _claim_next(self) -> CompileJob | None:
        """The next job that no other build is compiling, with its entry locked."""
        locked = []
        found = None
        for queue in (self._locked_elsewhere, self._waiting):
            while queue and found is None:
                job = queue.pop(0)
                state = self.settings.claim(job)
                if state == "locked":
                    locked.append(job)
                elif state == "claimed":
                    found = job
        self._locked_elsewhere.extend(locked)
        return found

    def _receive(self, worker: Worker) -> None:
        messages, connected = worker.receive()
        for message, payload in messages:
            if "ready" in message:
                worker.ready = True
                self._failed_starts = 0
            elif worker.job is not None:
                self._on_result(worker, worker.job, message, payload)
        if not connected and worker in self._workers:
            self._on_worker_died(worker, worker.death())

    def _on_result(self, worker: Worker, job: CompileJob, message: dict[str, Any], payload: bytes) -> None:
        if message.get("storage"):
            raise CacheError(
                f"a worker cannot write its temporary files: {message['storage']}",
                hint="free space on the cache's file system, or choose another cache folder",
            )
        if "error" in message:
            # a fresh worker for the second try: this one's state may be the reason
            output = "\n".join(filter(None, (str(message["trace"]), worker.log())))
            self._remove(worker).kill()
            self._on_failure(job, str(message["error"]), output)
            return
        seconds = time.monotonic() - worker.since
        worker.job = None
        try:
            self.settings.finish(job, payload, seconds=seconds, peak_bytes=int(message["peak_kib"]) * 1024)
        except DamagedObjectError as error:
            self._on_failure(job, f"the worker's result is damaged: {error}", "")
            return
        if worker.memory() > self.settings.limits.memory_bytes // 2:
            self._remove(worker).kill()  # what it has kept would count against the next job

    def _enforce_limits(self) -> None:
        now, limits = time.monotonic(), self.settings.limits
        for worker in list(self._workers):
            elapsed = now - worker.since
            if not worker.ready and elapsed > limits.start_seconds:
                self._on_worker_died(worker, f"did not start in {limits.start_seconds:g} s")
            elif worker.ready and worker.job and elapsed > limits.job_seconds:
                self._on_worker_died(worker, f"no answer in {limits.job_seconds:g} s")
            elif worker.job and worker.memory() > limits.memory_bytes:
                self._on_worker_died(
                    worker, f"used more than {limits.memory_bytes / 2**30:.2g} GiB of memory"
                )

    def _on_worker_died(self, worker: Worker, reason: str) -> None:
        log = worker.log()
        self._remove(worker).kill()
        if worker.job is not None:
            self._on_failure(worker.job, reason, log)
        elif not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                raise ToolchainError(
                    f"compile workers do not start: {reason}\n{log}".rstrip(),
                    cause="Triton cannot be imported in a clean environment",
                    hint="reinstall the pinned environment",
                )

    def _on_failure(self, job: CompileJob, reason: str, output: str) -> None:
        self.settings.store.release(job.key)
        self._tries[job.key] = self._tries.get(job.key, 0) + 1
        if self._tries[job.key] < ATTEMPTS:
            self._waiting.append(job)
            self.settings.report(Outcome(kind="retry", job=job, detail=reason))
        else:
            self.failures.append(Outcome(kind="failed", job=job, detail=reason, output=output))
            self.settings.report(self.failures[-1])

    def _remove(self, worker: Worker) -> Worker:
        self._workers.remove(worker)
        with suppress(KeyError, ValueError):
            self._selector.unregister(worker)
        return worker
