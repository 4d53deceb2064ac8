"""Verification on a cluster: workers execute images, verdicts return as files of a verdict store.

Passed verdicts go into the cache folder, where the verifier finds them. The first images that failed are executed again on this machine,
which confirms the failure and names source lines; verdicts on the others are the workers'.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotforge.base.architectures import Architectures
from aotforge.base.files import write_atomic
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache_entry import encode as encode_entry
from aotforge.compile.image_set import ImageSet
from aotforge.compile.pool import WorkerLimits
from aotforge.pipeline.cluster.cluster import Cluster
from aotforge.pipeline.cluster.messages import Order, Reference, Result
from aotforge.pipeline.display import BuildObserver
from aotforge.plan.model import JobKey, Plan
from aotforge.targets.backends import backend_of_arch
from aotforge.verify.report import VerifyReport
from aotforge.verify.verdict import ImageTask, Verdict, VerifyEvent
from aotforge.verify.verdict_store import VERSION, load_verdict, verdict_key
from aotforge.verify.verify_plan import TIMEOUT, image_tasks, source_map, verify_tasks
from vgpu.emulator.lines import LineMap
from vgpu.emulator.listing import instruction_names
from vgpu.emulator.targets import emulated_target

_EXPLAINED = 4
"""Failed images that are executed again here: a fault in one kernel is in all its images."""


@dataclass(kw_only=True)
class ClusterVerifier:
    """Verifies a plan's images on a cluster; the counterpart of `verify.verify_plan.verify_images`."""

    cluster: Cluster
    plan: Plan
    images: ImageSet
    architectures: Architectures
    observer: BuildObserver
    device: bool = False
    found: dict[JobKey, Verdict] = field(default_factory=dict)
    _tasks: dict[JobKey, ImageTask] = field(default_factory=dict)

    def verify(self) -> VerifyReport:
        """A verdict on every image. Raises ClusterError, and what `verify_images` raises."""
        began = time.monotonic()
        request = self.cluster.request
        tasks = image_tasks(self.plan, self.images, request.kernels)
        self._tasks = {task.key: task for task in tasks if self._is_missing(task)}
        if self._tasks:
            self._execute()
        failed = [verdict for verdict in self.found.values() if verdict.outcome != "passed"]
        theirs = {verdict.key: verdict for verdict in failed[_EXPLAINED:]}
        return replace(self._report(tasks, theirs), seconds=time.monotonic() - began)

    def _is_missing(self, task: ImageTask) -> bool:
        is_emulated = backend_of_arch(task.arch).executed_by == "virtual GPU"
        return is_emulated and load_verdict(self.cluster.request.cache, verdict_key(task), task) is None

    def _execute(self) -> None:
        limits = WorkerLimits()
        session = self.cluster.session(
            self.plan.toolchain,
            limits,
            verify_seconds=TIMEOUT,
            instructions=_instructions(self._tasks.values()),
        )
        reference = self.cluster.put(session.encode())
        queue = self.cluster.queue(session, reference, TIMEOUT)
        queue.run([self._order(task, reference) for task in self._tasks.values()], self)

    def _order(self, task: ImageTask, session: Reference) -> Order:
        image = self.cluster.put(encode_entry(self.images.entry(task.key)))
        body = {
            "image": image,
            "arch": task.arch,
            "resources": task.resources,
            "folder": task.folder,
            "verifier_digest": task.verifier_digest,
            "verdict": verdict_key(task),
            # a kernel's other functionals take no part
            "uses": [replace(use, kernel=replace(use.kernel, functionals=())) for use in task.uses],
        }
        return Order(
            kind="verify",
            key=task.key,
            label=task.label,
            place=self.cluster.place,
            session=session,
            body=body,
        )

    def done(self, order: Order, result: Result, data: bytes) -> None:
        """Keeps a verdict, a passed one in the cache folder. Raises DamagedObjectError, CacheError, OutputError."""
        task, key = self._tasks[order.key], str(order.body["verdict"])
        name = f"verdicts-{VERSION}/{key[:2]}/{key}"
        with tempfile.TemporaryDirectory() as folder:
            write_atomic(Path(folder) / name, data)
            try:
                verdict = load_verdict(Path(folder), key, task)
            except (ValueError, KeyError, TypeError) as error:
                raise DamagedObjectError(str(error)) from error
        if verdict is None:
            raise DamagedObjectError("not an intact verdict")
        self.found[order.key] = replace(verdict, cached=False)
        if verdict.outcome == "passed":
            write_atomic(self.cluster.request.cache / name, data)
            assert result.object is not None
            self.cluster.adopt(f"verdicts-{VERSION}", key, result.object)
        event = VerifyEvent(verdict=self.found[order.key], done=len(self.found), total=len(self._tasks))
        self.observer.verdict(event)

    def failed(self, order: Order, result: Result) -> bool:
        """No verification job fails: a failure is a verdict."""
        return True

    def lost(self, order: Order, reason: str) -> None:
        """Reports that a job is sent again."""
        self.observer.note(f"{order.label} is verified again: {reason}")

    def _report(self, tasks: Sequence[ImageTask], theirs: Mapping[JobKey, Verdict]) -> VerifyReport:
        """All verdicts: the verifier's own, from the cache folder or executed here, and those of `theirs`."""
        request = self.cluster.request
        planned = {job.key: job for job in self.plan.jobs}

        def lines(task: ImageTask) -> LineMap:
            with tempfile.TemporaryDirectory() as scratch:
                return source_map(
                    planned[task.key], task.binary, kernels_root=request.kernels, architectures=self.architectures, scratch=Path(scratch)
                )  # fmt: skip

        report = verify_tasks(
            [task for task in tasks if task.key not in theirs],
            self.plan.pack,
            self.plan.archs,
            self.plan.profile,
            sources=lines,
            kernels_root=request.kernels,
            cache=request.cache,
            jobs=request.jobs,
            on_event=self._on_event,
            on_stage=self.observer.stage,
            device=self.device,
        )
        known = {verdict.key: verdict for verdict in report.verdicts}
        for key, verdict in self.found.items():
            if key not in known or known[key].outcome == "passed":
                known[key] = verdict
        return replace(report, verdicts=tuple(known[task.key] for task in tasks))

    def _on_event(self, event: VerifyEvent) -> None:
        """Passes events on but those of images that the cluster has executed."""
        if event.verdict.key not in self.found:
            self.observer.verdict(event)


def _instructions(tasks: Iterable[ImageTask]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Instructions of all images by lanes of a warp."""
    texts: dict[int, list[str]] = {}
    for task in tasks:
        texts.setdefault(emulated_target(task.arch).lanes, []).append(task.asm)
    return tuple((lanes, tuple(sorted(instruction_names(found)))) for lanes, found in sorted(texts.items()))
