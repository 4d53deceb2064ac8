"""Messages of the worker in a rootfs: failures, errors of the project, and invalid messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from aotforge.compile.pool import WorkerLimits, frame
from aotforge.compile.remote import RemoteScheduler, _run, rootfs_toolchain
from aotforge.compile.scheduler import CompileSettings
from aotforge.errors import ExecutorError, ToolchainError
from aotforge.plan.model import CompileJob
from aotforge.run.step import ExecutionTarget, RootFS, Step

ROOTFS = RootFS(
    name="r", identity="i", python="/python", environment=(), packed=cast(Any, None), unpacked=Path
)  # fmt: skip
STEP = Step(name="a step", command=("x",), environment={})
FAILED = {"outcome": "failed", "key": "k", "detail": "d", "output": "o"}


class Sending:
    """A runner whose step writes these pieces to stdout."""

    name = "test"

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    def run(self, step: Step, rootfs: RootFS) -> int:
        for piece in self._pieces:
            step.on_output("stdout", piece)
        return 0


def target(*pieces: bytes) -> ExecutionTarget:
    return ExecutionTarget(runner=cast(Any, Sending(*pieces)), rootfs=ROOTFS)


def received(*pieces: bytes) -> RemoteScheduler:
    """After these pieces, while it compiled one job, `k`."""
    job = cast(CompileJob, type("Job", (), {"key": "k", "label": "a job"})())
    settings = CompileSettings(
        store=cast(Any, None), allocator=Path(), kernels_root=Path(), workers=1, limits=WorkerLimits(),
            report=lambda outcome: None
    )  # fmt: skip
    made = RemoteScheduler(jobs=[job], settings=settings, execution=target(), _claimed={"k": job})
    _run(STEP, target(*pieces), made._on_message)
    return made


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_failures_and_errors(size: int) -> None:
    """However the output is cut."""
    stream = frame({"started": "k"}) + frame(FAILED, b"bytes\n")
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    (failure,) = received(*pieces).failures
    assert (failure.detail, failure.output) == ("d", "o")
    with pytest.raises(ToolchainError, match="w"):
        received(frame({"error": "w", "cause": "", "hint": ""}))


@pytest.mark.parametrize("piece", [b"a line of a kernel's print\n", frame({"outcome": "failed", "key": "x"})])
def test_text_that_is_no_message(piece: bytes) -> None:
    with pytest.raises(ExecutorError, match="a step: the worker's messages are not valid"):
        received(piece)


def test_a_toolchain_that_does_not_answer_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="no answer"):
        rootfs_toolchain(target(), "x", cache=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
