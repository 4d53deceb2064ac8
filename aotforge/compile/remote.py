"""Compiling in another place: jobs and sources go to an executor, finished images come back one by one and enter this cache at once."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aotforge import errors
from aotforge.base.files import write_atomic
from aotforge.base.machine import GIB
from aotforge.base.source_groups import group_files
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import Entry, EntryError, decode
from aotforge.compile.remote_worker import ALLOCATOR
from aotforge.compile.scheduler import ATTEMPTS, Failure, Outcome, cost
from aotforge.compile.wire import Frames, job_to_wire
from aotforge.compile.worker_limits import Limits
from aotforge.errors import AotforgeError, ExecutorError, LimitError, ToolchainError
from aotforge.formats.tree import input_tree
from aotforge.plan.model import CompileJob, JobKey
from aotforge.plan.serial import build
from aotforge.sandbox.executors.step import ExecutionTarget, Step, StepLimits, limit_error
from aotforge.toolchain.allocator import build_allocator
from aotforge.toolchain.triton import Toolchain

_POLL_SECONDS = 0.1
_START_SECONDS = 600.0


class Away:
    """As `Scheduler`, for an execution target: compiles `jobs`, tells `report` of each, has the `failures` afterwards."""

    def __init__(
        self,
        jobs: list[CompileJob],
        *,
        cache: Cache,
        kernels_root: Path,
        wanted: int | None,
        limits: Limits,
        execution: ExecutionTarget,
        report: Callable[[Outcome], None],
    ) -> None:
        self._waiting = {job.key: job for job in sorted(jobs, key=cost, reverse=True)}
        self._cache = cache
        self._root = kernels_root
        self._wanted = wanted
        self._limits = limits
        self._execution = execution
        self._report = report
        self._mine: dict[JobKey, CompileJob] = {}
        self._started: set[JobKey] = set()
        self.failures: list[Failure] = []

    def run(self) -> None:
        """Work until every job is done or failed; jobs that other builds are at are waited for. Raises CacheError, ToolchainError,
        LimitError, ExecutorError. What was finished by then is in the cache."""
        while self._waiting:
            self._take()
            if self._mine:
                try:
                    self._compile()
                finally:
                    # also of jobs that failed: another build need not wait for the end of this one
                    for key in self._mine:
                        self._cache.release(key)
                    self._mine.clear()
            elif self._waiting:
                time.sleep(_POLL_SECONDS)

    def _take(self) -> None:
        """All jobs that no other build is at, without those that it has finished."""
        for key, job in list(self._waiting.items()):
            if not self._cache.acquire(key):
                continue
            del self._waiting[key]
            entry = self._load(key)
            if entry is None:
                self._mine[key] = job
            else:
                self._cache.release(key)
                self._report(Outcome(kind="shared", job=job, summary=entry.summary))

    def _load(self, key: JobKey) -> Entry | None:
        try:
            return self._cache.load(key)
        except EntryError:
            return None

    def _compile(self) -> None:
        step, frames, before = self._step(), Frames(), len(self.failures)
        log = bytearray()

        def heard(stream: str, data: bytes) -> None:
            if stream == "stderr":
                log.extend(data)
                return
            for message, payload in frames.feed(data):
                self._news(message, payload)

        try:
            finished = self._execution.executor.run(step, self._execution.rootfs, on_output=heard)
        except LimitError as error:
            at = ", ".join(sorted(self._mine[key].label for key in self._started if key in self._mine))
            raise LimitError(
                error.what + (f" while it compiled {at}" if at else ""), cause=error.cause, hint=error.hint
            ) from error
        if finished.oom_kills:
            killed = [f for f in self.failures[before:] if "SIGKILL" in f.reason]
            if killed:
                labels = ", ".join(failure.job.label for failure in killed)
                raise limit_error(step.name, "memory", step.limits, detail=labels, kept=finished.kept)
        lost = [job for job in self._mine.values() if job.key not in {f.job.key for f in self.failures}]
        if finished.status or lost:
            text = log.decode("utf-8", "replace").strip().splitlines()
            raise ExecutorError(
                f"{step.name} ended with {finished.status} and {len(lost)} jobs undone",
                cause=" / ".join(text[-3:]),
                hint=finished.kept or "run it again with --keep to look at what it leaves",
            )

    def _step(self) -> Step:
        limits = self._limits
        capacity = self._execution.executor.capacity()
        count = min(
            len(self._mine), self._wanted or capacity.cpus, int(capacity.memory_bytes // limits.memory_bytes)
        )
        count = max(1, count)
        order = {
            "jobs": [job_to_wire(job) for job in self._mine.values()],
            "count": count,
            "limits": asdict(limits),
        }
        rounds = math.ceil(len(self._mine) / count)
        return _step(
            f"compiling {len(self._mine)} images ({self._execution.executor.name})",
            self._execution,
            ("jobs", "{work}/in/jobs.json"),
            kernels=self._root,
            files={
                "jobs.json": json.dumps(order).encode("ascii"),
                ALLOCATOR: build_allocator(self._cache.folder).read_bytes(),
            },
            limits=StepLimits(
                memory_bytes=count * limits.memory_bytes + GIB,
                processes=64 + 64 * count,
                seconds=_START_SECONDS + ATTEMPTS * limits.job_seconds * rounds,
                scratch_bytes=GIB,
            ),
        )

    def _news(self, message: dict[str, Any], payload: bytes) -> None:
        if "error" in message:
            raise _error(message)
        key = str(message.get("started") or message.get("key") or message.get("failure"))
        job = self._mine.get(key)
        if job is None:
            raise ExecutorError(
                f"{self._execution.executor.name}: news of a job that was not sent", cause=key
            )
        if "started" in message:
            self._started.add(key)
        elif "failure" in message:
            self.failures.append(
                Failure(job=job, reason=str(message["reason"]), output=str(message["output"]))
            )
        elif message["outcome"] == "compiled":
            self._done(job, message, payload)
        else:
            self._started.discard(key)
            self._report(Outcome(kind=message["outcome"], job=job, detail=str(message["detail"])))

    def _done(self, job: CompileJob, message: dict[str, Any], payload: bytes) -> None:
        try:
            summary = decode(payload, job.key).summary
        except EntryError as error:
            raise ExecutorError(
                f"image of {job.label} came back damaged: {error}", hint="build again"
            ) from error
        self._cache.store(job.key, payload)
        self._cache.release(job.key)
        del self._mine[job.key]
        self._started.discard(job.key)
        self._report(
            Outcome(
                kind="compiled",
                job=job,
                summary=summary,
                seconds=float(message["seconds"]),
                peak_bytes=int(message["peak_bytes"]),
            )
        )


def rootfs_toolchain(execution: ExecutionTarget, pinned: str, *, cache: Path) -> Toolchain:
    """The compiler of an execution target's rootfs, which is asked once: the answer is kept in `cache` by the root's digest. Raises ToolchainError,
    ExecutorError, LimitError."""
    assert execution.rootfs is not None
    step = _step(
        f"asking the compiler of {execution.rootfs.name} what it is",
        execution,
        ("toolchain", pinned),
        limits=StepLimits(memory_bytes=2 * GIB, processes=64, seconds=_START_SECONDS, scratch_bytes=GIB),
    )
    key = hashlib.sha256(f"{execution.rootfs.identity}\0{pinned}\0".encode() + step.inputs).hexdigest()
    file = cache / "executors" / "toolchains" / f"{key}.json"
    try:
        return _toolchain(json.loads(file.read_text(encoding="ascii")))
    except (OSError, ValueError, LookupError, TypeError):
        pass
    frames, found, log = Frames(), list[dict[str, Any]](), bytearray()

    def heard(stream: str, data: bytes) -> None:
        if stream == "stdout":
            found.extend(message for message, _ in frames.feed(data))
        else:
            log.extend(data)

    finished = execution.executor.run(step, execution.rootfs, on_output=heard)
    if finished.status or not found:
        text = log.decode("utf-8", "replace").strip().splitlines()
        raise ToolchainError(
            f"the root {execution.rootfs.name} has no compiler that answers", cause=" / ".join(text[-2:])
        )
    if "error" in found[0]:
        raise _error(found[0])
    write_atomic(file, json.dumps(found[0]).encode("ascii"))
    return _toolchain(found[0])


def _toolchain(tree: dict[str, Any]) -> Toolchain:
    return build(Toolchain, tree)


def _step(
    name: str,
    execution: ExecutionTarget,
    words: tuple[str, ...],
    *,
    limits: StepLimits,
    kernels: Path | None = None,
    files: dict[str, bytes] | None = None,
) -> Step:
    assert execution.rootfs is not None
    members = {f"aotforge/{name}": path for name, path in group_files("compile worker").items()}
    if kernels is not None:
        members |= {f"kernels/{path.relative_to(kernels)}": path for path in kernels.rglob("*.py")}
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "{work}/in",
        "TMPDIR": "/tmp",
        **dict(execution.rootfs.environment),
    }
    return Step(
        name=name,
        command=(execution.rootfs.python, "-s", "-P", "-m", "aotforge.compile.remote_worker", *words),
        environment=environment,
        inputs=input_tree(members, files or {}),
        limits=limits,
    )


def _error(message: dict[str, Any]) -> AotforgeError:
    """An error that was raised inside, again."""
    kind = getattr(errors, str(message["error"]), AotforgeError)
    error = kind(str(message["what"]), cause=str(message["cause"]), hint=str(message["hint"]))
    assert isinstance(error, AotforgeError)
    return error
