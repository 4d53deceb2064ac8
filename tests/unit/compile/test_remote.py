"""Messages of the worker in a container, which a step can forge: each ends in a result or a named error, and
few are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from aotforge.compile.pool import WorkerLimits, frame
from aotforge.compile.remote import RemoteScheduler, _run, rootfs_toolchain
from aotforge.compile.scheduler import CompileSettings, Outcome
from aotforge.errors import AotforgeError, ExecutorError, ToolchainError
from aotforge.plan.model import CompileJob
from aotforge.sandbox.executors.executor import ExecutionTarget
from aotforge.sandbox.executors.step import OnOutput, RootFS, Step, StepResult

ROOTFS = RootFS(
    name="r", identity="i", python="/python", environment=(), image="", image_id="", unpacked=Path,
        archive=Path
)  # fmt: skip
STEP = Step(name="a step", command=("x",), environment={}, inputs=b"")
FAILED = {"outcome": "failed", "key": "k", "detail": "d", "output": "o"}


class Sending:
    """An executor whose step sends these messages."""

    name = "test"

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = messages

    def run(self, step: Step, rootfs: RootFS, *, on_output: OnOutput) -> StepResult:
        for message in self._messages:
            on_output("stdout", frame(message))
        return StepResult(status=0, signal=0, outputs=b"", cpu_seconds=0.0, peak_bytes=0, oom_kills=0)


def target(*messages: dict[str, Any]) -> ExecutionTarget:
    return ExecutionTarget(executor=cast(Any, Sending(*messages)), rootfs=ROOTFS)


def scheduler() -> RemoteScheduler:
    """With one job, `k`, that is being compiled."""
    job = cast(CompileJob, type("Job", (), {"key": "k", "label": "a job"})())
    settings = CompileSettings(
        store=cast(Any, None), allocator=Path(), kernels_root=Path(), workers=1, limits=WorkerLimits(),
            report=lambda outcome: None
    )  # fmt: skip
    return RemoteScheduler(jobs=[job], settings=settings, execution=target(), _claimed={"k": job})


def failures(*messages: dict[str, Any]) -> list[Outcome]:
    made = scheduler()
    _run(STEP, target(*messages), made._on_message)
    return made.failures


def test_a_job_fails_once_and_with_some_text() -> None:
    (failure,) = failures(FAILED | {"output": "x" * 1_000_000})
    assert failure.output == "x" * (1 << 16)
    with pytest.raises(ExecutorError, match="unexpected message for a job"):
        failures(FAILED, FAILED)


@pytest.mark.parametrize(
    "message",
    [
        {"key": "k"}, {"outcome": "failed", "key": "k"}, {"outcome": "compiled", "key": "k"},
            {"error": "CacheError"},
        {"outcome": "compiled", "key": "k", "seconds": "x", "peak_bytes": 1},
        {"outcome": "compiled", "key": "k", "seconds": 1, "peak_bytes": float("inf")},
    ],
)  # fmt: skip
def test_messages_that_are_not_valid(message: dict[str, Any]) -> None:
    with pytest.raises(ExecutorError, match="a step: the worker's messages are not valid"):
        failures(message)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("CacheError", "CacheError"), ("listed", "UserError")],
)
def test_errors_are_those_of_this_project(name: str, kind: str) -> None:
    with pytest.raises(AotforgeError, match="w") as caught:
        failures({"error": name, "what": "w", "cause": "", "hint": ""})
    assert type(caught.value).__name__ == kind


def test_a_toolchain_that_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="messages are not valid"):
        rootfs_toolchain(target({"odd": 1}), "x", cache=tmp_path)
    with pytest.raises(ToolchainError, match="did not respond"):
        rootfs_toolchain(target(), "x", cache=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
