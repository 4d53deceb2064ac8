"""The contract of all step runners: inputs, outputs, environment, isolation, limits and leftovers."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from aotforge.errors import LimitError
from aotforge.formats.archive import input_tree
from aotforge.run.step import OnOutput, RootFS, Step, StepLimits, StepRunner
from tests.support.rootfs import NAMES, SANDBOXED, runner, small_rootfs

MIB = 1 << 20
SMALL = StepLimits(memory_bytes=512 * MIB, processes=64, seconds=600)


class Bench:
    """A runner with a rootfs, and what steps wrote to it."""

    def __init__(self, runner: StepRunner, rootfs: RootFS) -> None:
        self.runner, self.rootfs = runner, rootfs
        self.received: list[tuple[str, bytes]] = []

    def step(
        self,
        script: str,
        *,
        limits: StepLimits = SMALL,
        files: dict[str, bytes] | None = None,
        outputs: Path | None = None,
        on_output: OnOutput | None = None,
    ) -> Step:
        return Step(
            name="test step",
            command=("/bin/sh", "-c", script),
            inputs=input_tree({}, files or {}),
            limits=limits,
            environment={"PATH": "/usr/bin:/bin", "WORK": "{work}", "PY": self.rootfs.python},
            outputs=outputs,
            on_output=on_output or (lambda stream, data: self.received.append((stream, data))),
        )

    def run(self, script: str, **options: Any) -> int:
        self.received.clear()
        return self.runner.run(self.step(script, **options), self.rootfs)

    def text(self, stream: str) -> str:
        return b"".join(data for name, data in self.received if name == stream).decode()


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> RootFS:
    return small_rootfs(tmp_path_factory.mktemp("small-root"))


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, rootfs: RootFS, tmp_path: Path) -> Bench:
    return Bench(runner(request.param, tmp_path / "cache"), rootfs)


@pytest.fixture(params=SANDBOXED)
def sandboxed(request: pytest.FixtureRequest, rootfs: RootFS, tmp_path: Path) -> Bench:
    return Bench(runner(request.param, tmp_path / "cache"), rootfs)


def test_streams_statuses_and_signals(bench: Bench) -> None:
    assert bench.run("echo out; echo err >&2; echo more; exit 7") == 7
    assert (bench.text("stdout"), bench.text("stderr")) == ("out\nmore\n", "err\n")
    assert bench.run("kill -SEGV $$") == 128 + signal.SIGSEGV
    assert bench.run("printf '\\0\\377'") == 0
    assert b"".join(data for _, data in bench.received) == b"\0\xff"


def test_only_the_steps_own_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "planted")
    monkeypatch.setenv("https_proxy", "http://user:planted@127.0.0.1")
    bench.run("env; cat /proc/1/environ" if bench.runner.name != "local" else "env")
    assert "planted" not in bench.text("stdout")
    names = {line.partition("=")[0] for line in bench.text("stdout").partition("\0")[0].splitlines()}
    assert {"PATH", "WORK", "PY"} <= names


def test_files_with_odd_names_and_big_outputs_come_back_complete(bench: Bench, tmp_path: Path) -> None:
    odd = ["a b/ü ñ.txt", "-rf", "quote'\"", "new\nline", "x" * 120]
    files = {name: name.encode() for name in odd}
    big = (
        "file = open(__import__('os').environ['WORK'] + '/out/big', 'wb');"
        "[file.write(bytes([i % 251]) * 65536) for i in range(800)]"
    )
    done = bench.run(
        'mkdir "$WORK/out/tree"; cd "$WORK/in"; cat -- "a b/ü ñ.txt" -rf > ../out/tree/both;'
        f'"$PY" -c "{big}"',
        files=files,
        outputs=tmp_path / "out",
    )
    assert done == 0, bench.text("stderr")
    assert (tmp_path / "out" / "tree" / "both").read_text() == "a b/ü ñ.txt-rf"
    wanted = hashlib.sha256(b"".join(bytes([i % 251]) * 65536 for i in range(800))).hexdigest()
    assert hashlib.sha256((tmp_path / "out" / "big").read_bytes()).hexdigest() == wanted


def test_output_is_streamed_in_order_and_an_error_ends_the_step(bench: Bench) -> None:
    seen: list[bytes] = []

    class EnoughError(Exception):
        pass

    def receive(stream: str, data: bytes) -> None:
        seen.append(data)
        if b"first" in data:
            raise EnoughError  # the step still waits: the output was received while it ran

    with pytest.raises(EnoughError):
        bench.run("echo first; sleep 600", on_output=receive)
    assert b"".join(seen) == b"first\n"
    bench.run("for i in 1 2 3 4 5 6 7 8 9; do echo $i; done")
    assert bench.text("stdout") == "".join(f"{i}\n" for i in range(1, 10))


def test_time_memory_and_processes_have_limits(bench: Bench) -> None:
    with pytest.raises(LimitError, match=r"test step needs more than its limit of 0\.5 s of time"):
        bench.run("sleep 600", limits=StepLimits(seconds=0.5))
    eat = "x = [bytearray(b'x' * (1 << 20)) for _ in range(4000)]; import time; time.sleep(60)"
    limits = StepLimits(memory_bytes=128 * MIB, seconds=600)
    if bench.runner.name in {"docker", "podman"}:
        with pytest.raises(LimitError, match=r"0\.125 GiB of memory"):
            bench.run(f'"$PY" -c "{eat}"', limits=limits)
        fork = "i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i+1)); done; wait"
        assert bench.run(fork, limits=StepLimits(processes=20, seconds=600))
        assert "fork" in bench.text("stderr")
    else:
        assert bench.run(f'"$PY" -c "{eat}"', limits=limits)
        assert "MemoryError" in bench.text("stderr")
    assert bench.run("true") == 0


def test_nothing_of_a_step_is_left(bench: Bench, tmp_path: Path) -> None:
    assert bench.run("sleep 613 & exit 3") == 3
    assert not _running("613")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert bench.runner.prune() == []


def test_isolation(sandboxed: Bench) -> None:
    done = sandboxed.run("touch /usr/x && echo wrote; cat /proc/net/dev; echo; cat /proc/self/status")
    text = sandboxed.text("stdout")
    assert done == 0 and "wrote" not in text
    devices = [
        line.split(":")[0].strip() for line in text.splitlines() if ":" in line and "Inter" not in line
    ]
    assert devices[0] == "lo" and not [name for name in devices if name.startswith(("eth", "en"))]
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert fields["CapEff"].strip("0") == fields["CapPrm"].strip("0") == "" and fields["NoNewPrivs"] == "1"
    assert int(fields["NSpid"].split()[-1]) < 50, "it sees processes of others"


@pytest.mark.parametrize("name", NAMES)
def test_the_next_command_removes_what_a_killed_one_left(name: str, rootfs: RootFS, tmp_path: Path) -> None:
    here = runner(name, tmp_path)
    here.run(Bench(here, rootfs).step("true"), rootfs)  # an engine has the image now
    seconds = str(40_000 + os.getpid())
    for end in (signal.SIGKILL, signal.SIGINT):
        child = os.fork()
        if not child:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                step = Bench(here, rootfs).step(f"sleep {seconds} & while echo tick; do sleep 0.1; done")
                runner(name, tmp_path).run(step, rootfs)
            finally:
                os._exit(1)
        limit = time.monotonic() + 120
        while not _running(seconds) and time.monotonic() < limit:
            time.sleep(0.05)
        os.kill(child, end)
        os.waitpid(child, 0)
        here.prune()
        if name != "local":
            while _running(seconds) and time.monotonic() < limit:
                time.sleep(0.05)
            assert not _running(seconds)
        for path in _running(seconds):
            os.kill(int(path.parent.name), signal.SIGKILL)
        assert not list((tmp_path / "executors" / name).glob("step-*"))
        assert here.prune() == []


def _running(seconds: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(path)
        except OSError:
            continue
    return found
