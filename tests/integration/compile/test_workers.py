"""Messages between builder and worker, with stand-ins for the worker."""

from __future__ import annotations

import os
import select
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.compile.compile_plan import reproduction
from aotforge.compile.pool import Frames, Worker, frame
from aotforge.compile.worker import _serve
from tests.unit.pack.samples import sample

PLAN, _ = sample()
JOB = PLAN.jobs[0]

# argument 5 is the socket: -s -P -m MODULE FD ...
_STAND_IN = """#!{python}
import socket, struct, sys
link = socket.socket(fileno=int(sys.argv[5]))
answers = {answers!r}
for answer in answers:
    link.sendall(answer)
    link.recv(1 << 20)
"""


def worker(folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> Worker:
    """A worker that sends the first answer when it starts, and another one after each job."""
    script = folder / "worker"
    script.write_text(_STAND_IN.format(python=sys.executable, answers=answers))
    script.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("aotforge.compile.pool.sys.executable", str(script))
        return Worker(folder, (), folder)


def received(made: Worker) -> tuple[list[dict[str, Any]], bool]:
    select.select([made], [], [], 30)
    messages, connected = made.receive()
    return [message for message, _ in messages], connected


def test_the_memory_of_a_job_is_not_counted_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = worker(tmp_path, monkeypatch, frame({"ready": 1}), frame({"job_pid": os.getpid()}))
    try:
        assert received(made) == ([{"ready": 1}], True)
        own = made.memory()
        made.send(JOB)
        assert received(made) == ([], True)
        assert made.memory() > own  # that of the tests
        made.send(JOB)
        assert made.memory() <= own * 2
    finally:
        made.kill()


@pytest.mark.parametrize(
    "bytes_", [b"\2\0\0\0\0\0\0\0{{", b"\2\0\0\0\0\0\0\0[]", b"\1\0\0\0\0\0\0\0\xff", frame({"job_pid": "x"})]
)
def test_a_damaged_message_is_a_lost_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_: bytes
) -> None:
    made = worker(tmp_path, monkeypatch, bytes_)
    try:
        assert received(made) == ([], False)
        assert made.death() == "the worker sent a damaged message"
    finally:
        made.kill()


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

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(os, "fork", fork_and_wait)
    monkeypatch.setattr("aotforge.compile.worker.begin_heap", lambda: None)  # there is none here
    compiler: Any = SimpleNamespace(compile=refuse)
    with ours, theirs:
        _serve(theirs, compiler, asdict(JOB))
        first, second = (message for message, _ in Frames().feed(ours.recv(1 << 20)))
    assert first == {"job_pid": forked[0]}
    assert second["error"] == "ValueError: no compiler"


def test_reproduction_commands_can_be_pasted() -> None:
    assert reproduction(PLAN, JOB).startswith("./dev compile.job ")
