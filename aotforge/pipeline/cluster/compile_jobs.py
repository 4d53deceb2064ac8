"""Compilation on a cluster: claims jobs as a local build does, stores the images of workers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from aotforge.compile.cache_entry import KIND
from aotforge.compile.scheduler import ATTEMPTS, POLL_SECONDS, CompileSettings, Outcome, longest_first
from aotforge.pipeline.cluster.cluster import Cluster
from aotforge.pipeline.cluster.messages import Order, Reference, Result
from aotforge.plan.model import CompileJob, JobKey


@dataclass(kw_only=True)
class ClusterScheduler:
    """Compiles `jobs` on a cluster; the counterpart of `compile.scheduler.Scheduler`."""

    jobs: list[CompileJob]
    settings: CompileSettings
    cluster: Cluster
    failures: list[Outcome] = field(default_factory=list)
    _claimed: dict[JobKey, CompileJob] = field(default_factory=dict)
    _tries: dict[JobKey, int] = field(default_factory=dict)

    def run(self) -> None:
        """Work until every job is done or failed; waits for jobs that other builds on this machine are compiling.

        Raises CacheError, ClusterError; what is finished by then is in the cache.
        """
        session = self.cluster.session(self.jobs[0].toolchain, self.settings.limits, verify_seconds=0.0)
        reference = self.cluster.put(session.encode())
        queue = self.cluster.queue(session, reference, session.limits.job_seconds)
        waiting = longest_first(self.jobs)
        while waiting:
            states = [(job, self.settings.claim(job)) for job in waiting]
            waiting = [job for job, state in states if state == "locked"]
            self._claimed = {job.key: job for job, state in states if state == "claimed"}
            if not self._claimed and waiting:
                time.sleep(POLL_SECONDS)
            try:
                queue.run([self._order(job, reference) for job in self._claimed.values()], self)
            finally:
                for key in self._claimed:
                    self.settings.store.release(key)

    def _order(self, job: CompileJob, session: Reference) -> Order:
        body = {name: value for name, value in vars(job).items() if name != "toolchain"}
        return Order(
            kind="compile", key=job.key, label=job.label, place=self.cluster.place, session=session, body=body
        )

    def done(self, order: Order, result: Result, data: bytes) -> None:
        """Stores an image. Raises DamagedObjectError, CacheError."""
        assert result.object is not None
        job = self._claimed[order.key]
        self.cluster.adopt(KIND, job.key, result.object)
        self.settings.finish(job, data, seconds=result.seconds, peak_bytes=result.peak_bytes)
        del self._claimed[order.key]

    def failed(self, order: Order, result: Result) -> bool:
        """Records a failure of the compiler; True for the first one of a job."""
        job = self._claimed[order.key]
        self._tries[order.key] = self._tries.get(order.key, 0) + 1
        if self._tries[order.key] < ATTEMPTS:
            self.settings.report(Outcome(kind="retry", job=job, detail=f"{result.detail} ({result.worker})"))
            return True
        self.failures.append(Outcome(kind="failed", job=job, detail=result.detail, output=result.output))
        self.settings.report(self.failures[-1])
        return False

    def lost(self, order: Order, reason: str) -> None:
        """Reports that a job is sent again."""
        self.settings.report(Outcome(kind="retry", job=self._claimed[order.key], detail=reason))
