"""Compilation as steps in a rootfs: sends jobs and sources, stores each image as it arrives."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aotforge.base.files import write_atomic
from aotforge.base.machine import GIB
from aotforge.base.source_groups import group_files
from aotforge.compile.pool import Attempt, read_frame
from aotforge.compile.remote_worker import ALLOCATOR
from aotforge.compile.scheduler import ATTEMPTS, BatchScheduler, Outcome
from aotforge.errors import ExecutorError, LimitError, ToolchainError
from aotforge.formats.archive import input_tree
from aotforge.plan.model import JobKey, build
from aotforge.run.step import ExecutionTarget, Step, StepLimits
from aotforge.toolchain.triton import Toolchain

_START_SECONDS = 600.0
_LOG_TAIL = 4096

OnMessage = Callable[[dict[str, Any], bytes], None]


@dataclass
class RemoteScheduler(BatchScheduler):
    """In an execution target. Raises ToolchainError, LimitError, ExecutorError, too."""

    execution: ExecutionTarget = field(kw_only=True)
    _started: set[JobKey] = field(default_factory=set)

    def _compile(self) -> None:
        step = self._step()
        try:
            status, log = _run(step, self.execution, self._on_message)
        except LimitError as error:
            running = ", ".join(
                sorted(self._claimed[key].label for key in self._started & set(self._claimed))
            )
            error.what += f" while it compiled {running}" if running else ""
            raise
        lost = self._claimed.keys() - {failure.job.key for failure in self.failures}
        if status or lost:
            raise _failed(step, status, log, f"{len(lost)} jobs not finished")

    def _step(self) -> Step:
        limits, jobs = self.settings.limits, self._claimed.values()
        cpus, memory_bytes = self.execution.runner.capacity()
        by_memory = int(memory_bytes // limits.memory_bytes)
        count = max(1, min(len(jobs), self.settings.workers or cpus, by_memory))
        order = {"jobs": [asdict(job) for job in jobs], "count": count, "limits": asdict(limits)}
        return _step(
            f"compiling {len(jobs)} images ({self.execution.runner.name})",
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
            ),
        )

    def _on_message(self, message: dict[str, Any], payload: bytes) -> None:
        if "started" in message:
            self._started.add(message["started"])
            return
        key, job = message["key"], self._claimed[message["key"]]
        self._started.discard(key)
        if message["outcome"] == "compiled":
            made = Attempt(data=payload, seconds=message["seconds"], peak_bytes=message["peak_bytes"])
            if damage := self.settings.finish(job, made):
                raise ExecutorError(f"{job.label}: {damage}")
            del self._claimed[key]
            return
        if message["outcome"] == "failed":
            self._fail(job, message["detail"], message["output"])
        else:
            self.settings.report(Outcome(kind="retry", job=job, detail=message["detail"]))


def rootfs_toolchain(execution: ExecutionTarget, pinned: str, *, cache: Path) -> Toolchain:
    """The compiler of an execution target's rootfs; stored in `cache`, so that it is queried once.

    Raises ToolchainError, ExecutorError, LimitError.
    """
    assert execution.rootfs is not None
    step = _step(
        f"querying the compiler version of {execution.rootfs.name}",
        execution,
        ("toolchain", pinned),
        limits=StepLimits(memory_bytes=2 * GIB, processes=64, seconds=_START_SECONDS),
    )
    key = hashlib.sha256(f"{execution.rootfs.identity}\0{pinned}\0".encode() + step.inputs).hexdigest()
    file = cache / "executors" / "toolchains" / f"{key}.json"
    try:
        return build(Toolchain, json.loads(file.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError):
        pass
    received: dict[str, Any] = {}
    status, log = _run(step, execution, lambda message, _: received.update(message))
    if status or not received:
        raise _failed(step, status, log, "no answer")
    toolchain = build(Toolchain, received)
    write_atomic(file, json.dumps(received).encode("ascii"))
    return toolchain


def _run(step: Step, execution: ExecutionTarget, on_message: OnMessage) -> tuple[int, str]:
    """Runs a step of the worker: its status and the end of its log. Raises the error that it reports."""
    received, log = bytearray(), bytearray()

    def on_output(stream: str, data: bytes) -> None:
        if stream == "stderr":
            log.extend(data)
            del log[:-_LOG_TAIL]
            return
        received.extend(data)
        while b"\n" in data and (end := received.find(b"\n")) >= 0:
            line = bytes(received[:end])
            del received[: end + 1]
            message, payload = read_frame(line)
            if "error" in message:
                raise ToolchainError(message["error"], cause=message["cause"], hint=message["hint"])
            on_message(message, payload)

    try:
        status = execution.runner.run(replace(step, on_output=on_output), execution.rootfs)
        return status, log.decode("utf-8", "replace").strip()
    except (LookupError, TypeError, ValueError) as error:
        raise ExecutorError(
            f"{step.name}: the worker's messages are not valid: {error}",
            cause="a kernel's module or Triton writes to standard output",
            hint="remove its print(), or build with --executor local",
        ) from error


def _failed(step: Step, status: int, log: str, what: str) -> ExecutorError:
    return ExecutorError(
        f"{step.name} ended with status {status}: {what}",
        cause=" / ".join(log.splitlines()[-3:]),
        hint="run it again, or with --executor local",
    )


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
