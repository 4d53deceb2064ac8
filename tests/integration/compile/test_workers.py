"""Messages of a compile worker, and how to repeat a job."""

from __future__ import annotations

import os
from dataclasses import asdict
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.base.workers import Fork
from aotforge.compile.compile_plan import reproduction
from aotforge.compile.worker import _serve
from tests.unit.pack.samples import sample

PLAN, _ = sample()
JOB = PLAN.jobs[0]


def test_a_fork_sends_its_process_id_before_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is done before the process that forked it runs again."""
    fork = os.fork
    forked = []

    def fork_and_wait() -> int:
        child = fork()
        if child:
            forked.append(child)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return child

    def refuse(job: object) -> None:
        raise ValueError("no compiler")

    ours, theirs = Pipe()
    monkeypatch.setattr(os, "fork", fork_and_wait)
    monkeypatch.setattr("aotforge.compile.worker.begin_heap", lambda: None)  # there is none here
    compiler: Any = SimpleNamespace(compile=refuse)
    with ours, theirs:
        _serve(theirs, compiler, asdict(JOB))
        first, second = ours.recv(), ours.recv()
    assert first == Fork(pid=forked[0])
    assert second.failure == "ValueError: no compiler"


def test_reproduction_commands_can_be_pasted() -> None:
    assert reproduction(PLAN, JOB).startswith("./dev compile --job ")
