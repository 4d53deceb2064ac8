"""The contract of all executors: inputs, outputs, environment, isolation and limits of a step."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.child_processes import fixed_environment
from aotforge.errors import LimitError
from aotforge.sandbox.executors.executor import Executor
from aotforge.sandbox.executors.local import ProcessChannel
from aotforge.sandbox.executors.step import RootFS, Step, StepLimits, StepResult
from tests.support.rootfs import NAMES, SANDBOXED, executor, small_rootfs

MIB = 1 << 20
SMALL = StepLimits(memory_bytes=512 * MIB, processes=64, seconds=600, scratch_bytes=256 * MIB)


class Bench:
    """An executor with a root, and what steps wrote to it."""

    def __init__(self, runner: Executor, rootfs: RootFS) -> None:
        self.runner, self.rootfs = runner, rootfs
        self.received: list[tuple[str, bytes]] = []

    def run(
        self,
        script: str,
        *,
        limits: StepLimits = SMALL,
        files: dict[str, bytes] | None = None,
        outputs: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> StepResult:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, data in (files or {}).items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        step = Step(
            name="test step", command=("/bin/sh", "-c", script), inputs=packed.getvalue(), outputs=outputs, limits=limits,
            environment={"PATH": "/usr/bin:/bin", "WORK": "{work}", "PY": self.rootfs.python, **(environment or {})},
        )  # fmt: skip
        self.received.clear()
        return self.runner.run(step, self.rootfs, on_output=lambda s, d: self.received.append((s, d)))

    def text(self, stream: str) -> str:
        return b"".join(data for name, data in self.received if name == stream).decode()


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> RootFS:
    return small_rootfs(tmp_path_factory.mktemp("small-root"))


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, rootfs: RootFS, tmp_path: Path) -> Bench:
    return Bench(executor(request.param, tmp_path / "cache"), rootfs)


@pytest.fixture(params=SANDBOXED)
def sandboxed(request: pytest.FixtureRequest, rootfs: RootFS, tmp_path: Path) -> Bench:
    return Bench(executor(request.param, tmp_path / "cache"), rootfs)


def test_streams_statuses_and_signals(bench: Bench) -> None:
    done = bench.run("echo out; echo err >&2; echo more; exit 7")
    assert (done.status, done.signal, done.outputs) == (7, 0, b"")
    assert (bench.text("stdout"), bench.text("stderr")) == ("out\nmore\n", "err\n")
    done = bench.run("kill -SEGV $$")
    assert (done.status, done.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)
    assert bench.run("printf '\\0\\377'").status == 0
    assert b"".join(data for _, data in bench.received) == b"\0\xff"


def test_only_the_steps_own_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    bench.run("env")
    names = {line.partition("=")[0] for line in bench.text("stdout").splitlines()}
    assert {"PATH", "WORK", "PY"} <= names <= {"PATH", "WORK", "PY", "PWD", "OLDPWD", "SHLVL", "_"}


def test_files_with_odd_names_and_big_outputs_come_back_complete(bench: Bench) -> None:
    odd = ["a b/ü ñ.txt", "-rf", "quote'\"", "new\nline", "x" * 200]
    files = {name: name.encode() for name in odd}
    big = "head = open(__import__('os').environ['WORK'] + '/out/big', 'wb'); [head.write(bytes([i % 251]) * 65536) for i in range(800)]"
    done = bench.run(
        f'mkdir "$WORK/out/tree"; cd "$WORK/in"; cat -- "a b/ü ñ.txt" -rf > ../out/tree/both; "$PY" -c "{big}"',
        files=files,
        outputs=("tree", "big"),
    )
    assert done.status == 0, bench.text("stderr")
    with tarfile.open(fileobj=io.BytesIO(done.outputs)) as tar:
        both, large = tar.extractfile("tree/both"), tar.extractfile("big")
        assert both is not None and large is not None
        assert both.read() == "a b/ü ñ.txt-rf".encode()
        wanted = hashlib.sha256(b"".join(bytes([i % 251]) * 65536 for i in range(800)))
        assert hashlib.sha256(large.read()).digest() == wanted.digest()


def test_output_is_streamed_in_order(bench: Bench) -> None:
    seen: list[bytes] = []

    class EnoughError(Exception):
        pass

    def receive(stream: str, data: bytes) -> None:
        seen.append(data)
        if b"first" in data:
            raise EnoughError  # the step still waits: the output was received while it ran

    step = Step(
        name="test step", command=("/bin/sh", "-c", "echo first; sleep 600"), inputs=b"", environment={"PATH": "/usr/bin:/bin"},
        limits=SMALL,
    )  # fmt: skip
    with pytest.raises(EnoughError):
        bench.runner.run(step, bench.rootfs, on_output=receive)
    assert b"".join(seen) == b"first\n"
    bench.run("for i in 1 2 3 4 5 6 7 8 9; do echo $i; done")
    assert bench.text("stdout") == "".join(f"{i}\n" for i in range(1, 10))


def test_time_memory_and_processes_have_limits(bench: Bench) -> None:
    with pytest.raises(LimitError, match=r"test step needs more than its limit of 0\.5 s of time"):
        bench.run("sleep 600", limits=StepLimits(seconds=0.5))
    eat = "x = [bytearray(b'x' * (1 << 20)) for _ in range(4000)]; import time; time.sleep(60)"
    with pytest.raises(LimitError, match=r"0\.125 GiB of memory"):
        bench.run(f'"$PY" -c "{eat}"', limits=StepLimits(memory_bytes=128 * MIB, seconds=600))
    fork = "i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i+1)); done; wait"
    with pytest.raises(LimitError, match="20 processes"):
        bench.run(fork, limits=StepLimits(processes=20, seconds=600))
    assert bench.run("true").status == 0


def test_nothing_of_a_step_is_left(bench: Bench, tmp_path: Path) -> None:
    done = bench.run(
        "sleep 613 & \"$PY\" -c \"import os; os.fork() or os.setsid() or os.execlp('sleep', 'sleep', '617')\"; exit 3"
    )
    assert done.status == 3
    assert not _running("613") and not _running("617")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert bench.runner.reap() == []


def test_isolation(sandboxed: Bench) -> None:
    done = sandboxed.run(
        "id -u; touch /usr/x || echo read-only; cat /proc/net/dev; echo; cat /proc/self/status"
    )
    text = sandboxed.text("stdout")
    assert done.status == 0 and text.startswith("64042\nread-only\n")
    devices = [
        line.split(":")[0].strip() for line in text.splitlines() if ":" in line and "Inter" not in line
    ]
    assert devices[0] == "lo" and not [name for name in devices if name.startswith(("eth", "en"))]
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert (
        fields["CapEff"].strip("0") == ""
        and fields["CapPrm"].strip("0") == ""
        and fields["NoNewPrivs"] == "1"
    )
    if os.geteuid() == 0:  # another user has no capability that could drop from it
        assert fields["CapBnd"].strip("0") == "", fields["CapBnd"]
    pids = int(fields["NSpid"].split()[-1])
    assert pids < 50, "it sees processes of others"


def test_a_full_scratch_is_the_steps_own_trouble(sandboxed: Bench) -> None:
    fill = "\"$PY\" -c \"open(__import__('os').environ['WORK'] + '/out/f', 'wb').write(bytes(64 << 20))\""
    done = sandboxed.run(fill, limits=StepLimits(scratch_bytes=16 * MIB, memory_bytes=512 * MIB, seconds=600))
    assert done.status == 1 and "No space left" in sandboxed.text("stderr")


def _running(seconds: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(path)
    return found


class _Slow:
    """The agent's stdout, whose reader is interrupted between the descriptor's number and its use."""

    def __init__(self, file: Any, numbered: threading.Event) -> None:
        self._file, self._numbered = file, numbered

    def fileno(self) -> int:
        number = int(self._file.fileno())
        self._numbered.set()
        time.sleep(0.3)
        return number

    def close(self) -> None:
        self._file.close()


def test_a_reader_does_not_take_the_bytes_of_the_next_agent() -> None:
    """A closed descriptor's number goes to the next file that is opened."""
    channel = ProcessChannel(
        [sys.executable, "-c", "input()"], environment=fixed_environment({}), what="a step"
    )
    numbered, found = threading.Event(), list[bytes]()
    slow: Any = _Slow(channel._stdout, numbered)
    channel._stdout = slow
    reader = threading.Thread(target=lambda: found.append(channel.receive()))
    reader.start()
    numbered.wait()
    channel.send(b"\n")
    channel.close()
    read, write = os.pipe()  # takes the number
    os.write(write, b"of another")
    os.close(write)
    reader.join()
    assert found == [b""] and os.read(read, 100) == b"of another"
    os.close(read)
