"""The bound on a program's memory and processes where no control group can be made: each of its conditions, and its own failures."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotforge.sandbox import watch_process
from aotforge.sandbox.memory_watch import MemoryWatch


def end_of_a_watched_process(memory: int) -> int:
    """Its exit code. The watch is a thread here, whose functions a test can replace."""
    ended = threading.Event()
    with subprocess.Popen(["/bin/sleep", "30"]) as run, ThreadPoolExecutor(1) as pool:
        pool.submit(watch_process.watch, run.pid, memory, 20, lambda: ended.wait(0.01))
        try:
            return run.wait(50)
        finally:
            ended.set()


def test_more_processes_than_permitted_are_ended() -> None:
    """Each is a child of the one before."""
    chain = 'f() { if [ "$1" -gt 0 ]; then (f $(($1 - 1)); true); else exec sleep 60; fi; }; f 30'
    with MemoryWatch(memory_bytes=1 << 40, processes=20) as watch:
        done = subprocess.run(["/bin/sh", "-c", chain], check=False, preexec_fn=watch.join(), timeout=50)
    assert done.returncode == -signal.SIGKILL


def test_more_threads_than_permitted_are_ended() -> None:
    """For root they are not bounded by the kernel, and use up the machine's process IDs."""
    text = "import threading, time\nfor _ in range(30):\n    threading.Thread(target=time.sleep, args=(30,)).start()"
    with MemoryWatch(memory_bytes=1 << 40, processes=20) as watch:
        done = subprocess.run([sys.executable, "-c", text], check=False, preexec_fn=watch.join(), timeout=50)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose processes the kernel does not bound")
def test_the_watch_and_the_end_come_before_processes_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that forks without end had 23,000 and the machine for 80 s: the watch had to wait among them, and so had process 1 to end."""
    first = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    with MemoryWatch(memory_bytes=1 << 50, processes=20) as watch:
        watch.join()
        assert watch._process and os.sched_getscheduler(watch._process.pid) == first
    assert watch._process.returncode == 0
    monkeypatch.setattr(os, "kill", lambda process, number: None)
    with subprocess.Popen(["/bin/sleep", "30"]) as run:
        watch_process._kill([run.pid])
        assert os.sched_getscheduler(run.pid) == first
        run.send_signal(signal.SIGSTOP)
        monkeypatch.undo()
        watch_process._kill([run.pid])


def test_processes_are_counted_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list would grow as long as the program forks."""
    children = {1: [2, 3], 2: [4], 3: [5], 4: [6], 5: [], 6: []}

    class Task:
        def __init__(self, process: int) -> None:
            self.text = " ".join(map(str, children[process]))

        def __truediv__(self, name: str) -> Task:
            return self

        def read_text(self, encoding: str) -> str:
            return self.text

    monkeypatch.setattr(watch_process, "_tasks", lambda process: [Task(process)])
    assert watch_process._with_descendants(1, 6) == ([1, 2, 3, 4, 5, 6], 6)
    assert watch_process._with_descendants(1, 2) == ([1, 2, 3, 4, 5], 3)


def test_memory_of_the_kernel_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program can make it grow by locks of files, mappings and others, and no process has it."""
    monkeypatch.setattr(watch_process, "_kernel_bytes", iter([1 << 30, 5 << 29, 1 << 30, 4 << 30]).__next__)
    assert end_of_a_watched_process(2 << 30) == -signal.SIGKILL


def test_memory_of_a_process_whose_first_thread_has_ended_is_bounded() -> None:
    """Then /proc has no memory of the process, but that of its other threads."""
    text = (
        "import ctypes, threading, time\n"
        "def take():\n    time.sleep(0.2)\n    taken = bytearray(b'x') * (300 << 20)\n    time.sleep(30)\n"
        "threading.Thread(target=take, daemon=True).start()\nctypes.CDLL(None).syscall(60, 0)"
    )
    with MemoryWatch(memory_bytes=200 << 20, processes=20) as watch:
        command = ["/usr/bin/python3", "-c", text]
        done = subprocess.run(command, check=False, preexec_fn=watch.join(), timeout=50)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["\fVmPTE: -999999", "\x1cRssAnon:", "\rVmPTE: 1", "\vVmSwap: -9999"])
def test_a_name_of_a_process_has_no_part_in_its_memory(name: str) -> None:
    """The name was read as lines of its status: memory below zero, or of a process whose first thread has ended."""
    for taken, code in ((300, -signal.SIGKILL), (0, 0)):
        text = (
            f"import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\nlibc.prctl(15, {name.encode()!r}, 0, 0, 0)\n"
            f"def take():\n    time.sleep(0.2)\n    taken = bytearray(b'x') * ({taken} << 20)\n"
            "    time.sleep(20 if taken else 0.5)\n    os._exit(0)\n"
            "threading.Thread(target=take, daemon=True).start()\nlibc.syscall(60, 0)"
        )
        with MemoryWatch(memory_bytes=200 << 20, processes=20) as watch:
            command = ["/usr/bin/python3", "-c", text]
            done = subprocess.run(command, check=False, preexec_fn=watch.join(), timeout=50)
        assert done.returncode == code


def test_memory_that_processes_share_counts_for_each() -> None:
    """To divide it, the kernel walks all mappings of a process: seconds in which nothing was bounded."""
    text = "import os, time\ntaken = bytearray(b'x') * (80 << 20)\nos.fork()\nos.fork()\ntime.sleep(30)"
    for limit, code in ((300, -signal.SIGKILL), (1000, 0)):
        with MemoryWatch(memory_bytes=limit << 20, processes=20) as watch:
            command = ["/usr/bin/python3", "-c", text.replace("30", "30" if code else "1")]
            done = subprocess.run(command, check=False, preexec_fn=watch.join(), timeout=50)
        assert done.returncode == code


def test_a_machine_that_runs_out_of_memory_ends_the_program_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that passes from process to process quickly is not always seen."""
    looks = iter([8 << 30, 2 << 30, (1 << 30) - 1])
    monkeypatch.setattr(watch_process, "_available_bytes", lambda: next(looks))
    assert end_of_a_watched_process(1 << 50) == -signal.SIGKILL and next(looks, None) is None


def test_processes_that_end_while_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program can fork without an end: the watch must neither stop for it nor leave a program without a bound."""
    looks = iter([FileNotFoundError(2, "task"), ProcessLookupError(3, "task"), None])

    def listed(path: Path) -> list[Path]:
        if error := next(looks, None):
            raise error
        return [Path("/proc/0/task/0")] * 21

    monkeypatch.setattr(watch_process, "Path", type("Listed", (type(Path()),), {"iterdir": listed}))
    assert end_of_a_watched_process(1 << 50) == -signal.SIGKILL and next(looks, "used") == "used"


def test_a_watch_that_fails_ends_what_it_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(errno.EMFILE, "no descriptor is left")

    monkeypatch.setattr(watch_process, "_kernel_bytes", fail)
    assert end_of_a_watched_process(1 << 50) == -signal.SIGKILL
