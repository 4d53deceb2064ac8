"""Builds on a Dask cluster, whose workers return images and verdicts.

Dask schedules, retries and moves the jobs of lost workers. Only a command that uses a cluster imports it.
"""

from __future__ import annotations

import importlib.util
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from aotforge.compile.scheduler import BatchScheduler, CompileSettings
from aotforge.errors import ClusterError, ToolchainError, listed
from aotforge.pipeline.cluster_worker import PREFIX, compile_job, resource_name, verify_image
from aotforge.pipeline.requests import CachedRequest
from aotforge.plan.model import CompileJob
from aotforge.toolchain.triton import Toolchain

if TYPE_CHECKING:
    from aotforge.verify.verdict import ImageTask, Verdict  # numpy: 80 ms of a no-op build

RETRIES = 3
"""Times that Dask repeats a job that a worker could not try."""

PATIENCE = 600.0
"""Seconds that a build waits while the cluster has no worker that can be used."""

CONNECT_SECONDS = 30.0


@dataclass(kw_only=True)
class Cluster:
    """The cluster of one command. `note` receives refused workers. Raises ToolchainError without Dask."""

    address: str
    request: CachedRequest
    note: Callable[[str], None]
    patience: float = PATIENCE
    _refused: dict[str, str] = field(default_factory=dict)
    _usable: float = field(default_factory=time.monotonic)
    _slots: int = 0

    def __post_init__(self) -> None:
        if importlib.util.find_spec("distributed") is None:
            raise ToolchainError(
                f"the scheduler {self.address} needs the Python package distributed",
                cause="it is not part of an environment for builds on one machine",
                hint="pip install --only-binary :all: --require-hashes -r requirements/dask.txt",
            )

    @cached_property
    def client(self) -> Any:
        """The connection to the scheduler. Raises ClusterError."""
        from distributed import Client  # noqa: PLC0415 - 0.5 s, and a build may find everything in its cache

        self._usable = time.monotonic()
        try:
            return Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:
            raise ClusterError(
                f"the scheduler {self.address} cannot be used: {error}",
                cause="no scheduler is there, its certificates do not fit, or Dask has another version",
                hint="start one from this checkout: ./dev python -m dask scheduler (docs/scale.md)",
            ) from error

    def close(self) -> None:
        """Ends the connection."""
        if "client" in vars(self):
            self.client.close(timeout=5)

    def map(
        self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], toolchain: Toolchain
    ) -> Iterator[tuple[str, Any]]:
        """Results of `function(resource, *arguments)` on workers with this toolchain, by key, as they come.

        Raises ClusterError for a job that no worker could run, and without workers for too long.
        """
        resource = resource_name(toolchain, self.request.root)
        waiting, ended = deque(jobs.items()), SimpleQueue[Any]()
        futures: dict[str, Any] = {}

        def send(count: int) -> None:
            for _ in range(min(count, len(waiting))):
                key, arguments = waiting.popleft()
                futures[key] = self.client.submit(
                    function,
                    resource,
                    *arguments,
                    key=f"{function.__name__}-{key}",
                    resources={resource: 1},
                    retries=RETRIES,
                    pure=False,
                )
                futures[key].add_done_callback(lambda _, key=key: ended.put(key))

        checked = 0.0
        try:
            while waiting or futures:
                if time.monotonic() - checked > 1:
                    self._check_workers(resource)
                    checked = time.monotonic()
                # one per slot: Dask counts the death of a worker against every job that waits for it
                send(self._slots - len(futures))
                try:
                    key = ended.get(timeout=1)
                except Empty:
                    continue
                yield key, self._result(futures.pop(key), key)
        finally:
            if futures and self.client.status == "running":
                self.client.cancel(list(futures.values()), force=True)

    def _result(self, future: Any, key: str) -> Any:
        try:
            return future.result(timeout=self.patience)
        except Exception as error:
            raise ClusterError(
                f"job {key} has no result: {error}",
                cause=f"workers could not run it, {RETRIES + 1} times, or were killed; their logs have more",
                hint="repair that and run the same command again, which resumes",
            ) from error

    def _check_workers(self, resource: str) -> None:
        """Notes workers that cannot be used. Raises ClusterError without usable ones for too long."""
        present: dict[str, Any] = {}
        if self.client.status == "running":
            present = self.client.scheduler_info(n_workers=-1)["workers"]
        self._slots = sum(int(info["resources"].get(resource, 0)) for info in present.values())
        if self._slots:
            self._usable = time.monotonic()
        for address, info in present.items():
            reason = _difference(resource, info["resources"])
            if reason and self._refused.get(address) != reason:
                self._refused[address] = reason
                self.note(f"worker {address} is not used: {reason}")
        if time.monotonic() - self._usable > self.patience:
            refused = [
                f"{address}: {self._refused[address]}" for address in present if address in self._refused
            ]
            raise ClusterError(
                f"the cluster {self.address} has had no usable worker for {self.patience:.0f} s"
                + (f"; refused: {listed(refused)}" if refused else ""),
                cause="the refused workers are of another version"
                if refused
                else "no worker has joined, or the scheduler has ended",
                hint="start workers from this checkout (docs/scale.md) and run the same command again",
            )

    def scheduler(self, jobs: list[CompileJob], settings: CompileSettings) -> ClusterScheduler:
        """For `compile_plan`."""
        return ClusterScheduler(jobs=jobs, settings=settings, cluster=self)

    def verify(self, toolchain: Toolchain, tasks: Sequence[ImageTask]) -> Iterator[Verdict]:
        """Passed verdicts as they come; others are confirmed on this machine. Raises ClusterError."""
        from aotforge.verify.verdict_store import verdict_key  # noqa: PLC0415 - as below
        from aotforge.verify.verify_plan import (  # noqa: PLC0415 - the emulator: 60 ms of a no-op build
            TIMEOUT,
            instructions_by_lanes,
        )

        by_key = {verdict_key(task): task for task in tasks}
        names = tuple((lanes, tuple(names)) for lanes, names in instructions_by_lanes(tasks).items())
        jobs = {key: (_short(task), names, TIMEOUT) for key, task in by_key.items()}
        for key, verdict in self.map(verify_image, jobs, toolchain):
            if verdict.outcome == "passed" and verdict.digest == by_key[key].digest:
                yield verdict


def _difference(resource: str, resources: Mapping[str, float]) -> str:
    """Why a worker with `resources` cannot run jobs that need `resource`; empty when it can."""
    if resource in resources:
        return ""
    wanted = resource.split("-")
    for name in resources:
        if name.startswith(f"{PREFIX}-"):
            return f"it has {'another toolchain' if name.split('-')[1] != wanted[1] else 'other sources'}"
    return "it was started without --preload aotforge.pipeline.cluster_worker, or that failed: see its log"


def _short(task: ImageTask) -> ImageTask:
    """The task without the other functionals of its kernels, which take no part."""
    return replace(
        task, uses=tuple(replace(use, kernel=replace(use.kernel, functionals=())) for use in task.uses)
    )


@dataclass
class ClusterScheduler(BatchScheduler):
    """On a cluster. Raises ClusterError, too."""

    cluster: Cluster = field(kw_only=True)

    def _compile(self) -> None:
        arguments = {key: (job, self.settings.limits) for key, job in self._claimed.items()}
        for key, attempt in self.cluster.map(compile_job, arguments, self.jobs[0].toolchain):
            job = self._claimed.pop(key)
            if reason := self.settings.finish(job, attempt):
                self._fail(job, reason, attempt.output)
