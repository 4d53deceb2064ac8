"""Compilation in an executor: sends jobs and sources, stores each image as it arrives."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aotforge import errors
from aotforge.base.files import write_atomic
from aotforge.base.machine import GIB
from aotforge.base.object_cache import DamagedObjectError
from aotforge.base.source_groups import group_files
from aotforge.compile.pool import Frames
from aotforge.compile.remote_worker import ALLOCATOR
from aotforge.compile.scheduler import ATTEMPTS, POLL_SECONDS, CompileSettings, Outcome, longest_first
from aotforge.errors import AotforgeError, ExecutorError, LimitError, ToolchainError
from aotforge.formats.tree import input_tree
from aotforge.plan.model import CompileJob, JobKey, build
from aotforge.sandbox.executors.executor import ExecutionTarget
from aotforge.sandbox.executors.step import OutputTail, Step, StepLimits, StepResult, limit_error
from aotforge.toolchain.triton import Toolchain

_START_SECONDS = 600.0
_TEXT_LIMIT = 1 << 16
"""Characters of a failure that are kept: a step may send 16 MiB of each job."""

OnMessage = Callable[[dict[str, Any], bytes], None]


@dataclass
class RemoteScheduler:
    """Compiles `jobs` in an execution target; the counterpart of `Scheduler`."""

    jobs: list[CompileJob]
    settings: CompileSettings
    execution: ExecutionTarget
    failures: list[Outcome] = field(default_factory=list)
    _claimed: dict[JobKey, CompileJob] = field(default_factory=dict)
    _started: set[JobKey] = field(default_factory=set)

    def run(self) -> None:
        """Work until every job is done or failed; waits for jobs that other builds are compiling.

        Raises CacheError, ToolchainError, LimitError, ExecutorError; what is finished by then is in the
        cache.
        """
        waiting = longest_first(self.jobs)
        while waiting:
            states = [(job, self.settings.claim(job)) for job in waiting]
            waiting = [job for job, state in states if state == "locked"]
            self._claimed = {job.key: job for job, state in states if state == "claimed"}
            if self._claimed:
                try:
                    self._compile()
                finally:
                    # also of jobs that failed: another build need not wait for the end of this one
                    for key in self._claimed:
                        self.settings.store.release(key)
            elif waiting:
                time.sleep(POLL_SECONDS)

    def _compile(self) -> None:
        step, before = self._step(), len(self.failures)
        try:
            result, log = _run(step, self.execution, self._on_message)
        except LimitError as error:
            running = ", ".join(
                sorted(self._claimed[key].label for key in self._started & self._claimed.keys())
            )
            raise LimitError(
                error.what + (f" while it compiled {running}" if running else ""),
                cause=error.cause,
                hint=error.hint,
            ) from error
        killed = [f.job.label for f in self.failures[before:] if "SIGKILL" in f.detail]
        if result.oom_kills and killed:
            raise limit_error(step.name, "memory", step.limits, detail=", ".join(killed), kept=result.kept)
        lost = self._claimed.keys() - {failure.job.key for failure in self.failures}
        if result.status or lost:
            raise ExecutorError(
                f"{step.name} ended with status {result.status} and {len(lost)} jobs not finished",
                cause=" / ".join(log[-3:]),
                hint=result.kept or "run it again with --keep to inspect the files that it leaves",
            )

    def _step(self) -> Step:
        limits, jobs = self.settings.limits, self._claimed.values()
        capacity = self.execution.executor.capacity()
        by_memory = int(capacity.memory_bytes // limits.memory_bytes)
        count = max(1, min(len(jobs), self.settings.workers or capacity.cpus, by_memory))
        order = {"jobs": [asdict(job) for job in jobs], "count": count, "limits": asdict(limits)}
        return _step(
            f"compiling {len(jobs)} images ({self.execution.executor.name})",
            self.execution,
            ("jobs", "{work}/in/jobs.json"),
            kernels=self.settings.kernels_root,
            files={
                "jobs.json": json.dumps(order).encode("ascii"),
                ALLOCATOR: self.settings.allocator.read_bytes(),
            },
            limits=StepLimits(
                memory_bytes=count * limits.memory_bytes + GIB,
                processes=64 + 64 * count,
                seconds=_START_SECONDS + ATTEMPTS * limits.job_seconds * math.ceil(len(jobs) / count),
                scratch_bytes=GIB,
            ),
        )

    def _on_message(self, message: dict[str, Any], payload: bytes) -> None:
        key = str(message.get("started") or message.get("key"))
        job = self._claimed.get(key)
        if job is None or any(failure.job.key == key for failure in self.failures):
            raise ExecutorError(f"{self.execution.executor.name}: unexpected message for a job", cause=key)
        if "started" in message:
            self._started.add(key)
        elif message["outcome"] == "compiled":
            try:
                self.settings.finish(
                    job, payload, seconds=float(message["seconds"]), peak_bytes=int(message["peak_bytes"])
                )
            except DamagedObjectError as error:
                raise ExecutorError(
                    f"the image of {job.label} is damaged: {error}",
                    cause="it was changed between the container and this process",
                    hint="build again",
                ) from error
            del self._claimed[key]
        else:
            self._started.discard(key)
            detail, output = (str(message[name])[-_TEXT_LIMIT:] for name in ("detail", "output"))
            outcome = Outcome(kind=message["outcome"], job=job, detail=detail, output=output)
            if outcome.kind == "failed":
                self.failures.append(outcome)
            self.settings.report(outcome)


def rootfs_toolchain(execution: ExecutionTarget, pinned: str, *, cache: Path) -> Toolchain:
    """The compiler of an execution target's rootfs; stored in `cache` by the rootfs' digest, so that it is
    queried once.

    Raises ToolchainError, ExecutorError, LimitError.
    """
    assert execution.rootfs is not None
    step = _step(
        f"querying the compiler version of {execution.rootfs.name}",
        execution,
        ("toolchain", pinned),
        limits=StepLimits(memory_bytes=2 * GIB, processes=64, seconds=_START_SECONDS, scratch_bytes=GIB),
    )
    key = hashlib.sha256(f"{execution.rootfs.identity}\0{pinned}\0".encode() + step.inputs).hexdigest()
    file = cache / "executors" / "toolchains" / f"{key}.json"
    try:
        return build(Toolchain, json.loads(file.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError):
        pass
    found: dict[str, Any] = {}
    result, log = _run(step, execution, lambda message, _: found.update(toolchain=message))
    if result.status or not found:
        raise ToolchainError(
            f"the compiler of rootfs {execution.rootfs.name} did not respond", cause=" / ".join(log[-2:])
        )
    try:
        toolchain = build(Toolchain, found["toolchain"])
    except (ValueError, LookupError, TypeError) as error:
        raise _invalid(step.name, error) from error
    write_atomic(file, json.dumps(found["toolchain"]).encode("ascii"))
    return toolchain


def _run(step: Step, execution: ExecutionTarget, on_message: OnMessage) -> tuple[StepResult, list[str]]:
    """Run a step of the remote worker: its result and the lines of its log. An error that it reports is
    raised here."""
    frames, log = Frames(), OutputTail()

    def on_output(stream: str, data: bytes) -> None:
        if stream == "stderr":
            log.add(data)
            return
        for message, payload in _fed(frames, data, step.name):
            try:
                if "error" in message:
                    raise _reported(message)
                on_message(message, payload)
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                raise _invalid(step.name, error) from error

    result = execution.executor.run(step, execution.rootfs, on_output=on_output)
    return result, log.text().strip().splitlines()


def _reported(message: dict[str, Any]) -> AotforgeError:
    """The error in a worker's message. Raises KeyError."""
    kind = getattr(errors, str(message["error"]), None)
    known = kind if isinstance(kind, type) and issubclass(kind, AotforgeError) else AotforgeError
    return known(str(message["what"]), cause=str(message["cause"]), hint=str(message["hint"]))


def _invalid(step: str, error: Exception) -> ExecutorError:
    return ExecutorError(
        f"{step}: the worker's messages are not valid: {error}",
        cause="something in the step writes to the worker's stdout",
        hint="run it again; if it happens again, try another --executor",
    )


def _fed(frames: Frames, data: bytes, step: str) -> list[tuple[dict[str, Any], bytes]]:
    try:
        return frames.feed(data)
    except ValueError as error:
        raise _invalid(step, error) from error


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
    members = group_files("compile worker")
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
