"""Worker processes that crash, hang, eat memory, do not start, and those that follow them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotforge.base.child_processes import fixed_environment
from aotforge.base.workers import WorkerEnded, WorkerPool, WorkerProcess, import_path
from aotforge.errors import ToolchainError

ROOT = Path(__file__).parents[3]


def start(*words: str) -> WorkerProcess:
    path = os.pathsep.join([str(ROOT), *import_path()])
    environment = fixed_environment({"PYTHONPATH": path}, "PATH")
    return WorkerProcess("tests.support.odd_worker", words, environment=environment)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(start, seconds=300, memory_bytes=250 << 20)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("abort", "died of SIGABRT"),
        ("exit", "exited with status 3"),
        ("eat", "used more than 0.24 GiB of memory"),
    ],
)
def test_a_worker_in_trouble_is_replaced(pool: WorkerPool, message: str, reason: str) -> None:
    before = pool.request("")
    with pytest.raises(WorkerEnded, match=reason) as caught:
        pool.request(message)
    assert not caught.value.hang and caught.value.output in ("", "begun")
    assert pool.request("") not in (before, os.getpid())


def test_time_is_limited() -> None:
    pool = WorkerPool(start, seconds=0.5)
    with pytest.raises(WorkerEnded, match=r"gave no answer in 0\.5 s") as caught:
        pool.request("hang")
    assert caught.value.hang
    pool.close()
    with pytest.raises(ToolchainError, match="has been stopped"):
        pool.request("")


def test_memory_of_a_job_s_own_process_counts() -> None:
    """That of the tests, in place of a fork."""
    pool = WorkerPool(start, seconds=300, memory_bytes=1 << 20)
    with pytest.raises(WorkerEnded, match="used more than"):
        pool.request("fork")
    pool.close()


def test_workers_are_kept_but_not_those_that_keep_memory(pool: WorkerPool) -> None:
    first = pool.request("")
    assert pool.request("") == first
    os.kill(first, signal.SIGKILL)  # between two jobs
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    second = pool.request("keep")
    assert second != first
    third = pool.request("")
    assert third not in (first, second)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(pool.request, "").result() != third


def test_one_that_does_not_start_is_an_error_with_its_output() -> None:
    pool = WorkerPool(lambda: start("refuse"), seconds=300)
    with pytest.raises(ToolchainError, match="exited with status 1\nno settings"):
        pool.request("")


def test_closing_ends_busy_workers(pool: WorkerPool) -> None:
    ended: list[str] = []
    sent = threading.Event()

    def request() -> None:
        pool.request("")
        sent.set()
        try:
            pool.request("hang")
        except WorkerEnded as error:
            ended.append(error.reason)

    thread = threading.Thread(target=request)
    thread.start()
    assert sent.wait(300)
    pool.close()
    thread.join(300)
    assert not thread.is_alive() and len(ended) <= 1
