"""Clients killed at any moment: the next command removes their containers, processes, folders, cgroups and mounts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from aotforge.sandbox.executors.executor import Executor
from aotforge.sandbox.executors.step import RootFS
from tests.support.rootfs import NAMES, ROOT, executor, small_rootfs

_GONE_SECONDS = 120


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> RootFS:
    return small_rootfs(tmp_path_factory.mktemp("small-root"))


@pytest.mark.parametrize("name", NAMES)
def test_two_kills(name: str, rootfs: RootFS, tmp_path: Path) -> None:
    kill_often(name, rootfs, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_twenty_kills(name: str, rootfs: RootFS, tmp_path: Path) -> None:
    kill_often(name, rootfs, tmp_path, 20)


def kill_often(name: str, rootfs: RootFS, folder: Path, times: int) -> None:
    runner = executor(name, folder)
    file = folder / "rootfs.json"
    fields = {"tree": str(rootfs.unpacked()), "archive": str(rootfs.archive())}
    fields |= {key: getattr(rootfs, key) for key in ("name", "identity", "python", "image", "image_id")}
    file.write_text(json.dumps(fields))
    dice = random.Random()  # random on purpose: what must hold, holds at every moment
    # tests beside this one have steps of their own: its steps are known by how long they sleep, the rest by the clients' numbers
    seconds = f"{dice.randint(10_000, 99_999)}.{dice.randint(10_000, 99_999)}"
    clients: list[int] = []
    helpers: list[psutil.Process] = []
    for turn in range(times):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.sandbox.executors.driver", name, str(folder), str(file), seconds],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        clients.append(process.pid)
        assert process.stdout is not None
        while process.stdout.readline() not in {"start\n", ""}:
            pass
        time.sleep(dice.uniform(0, 0.8) if name != "podman" else dice.uniform(0, 1.6))
        helpers += psutil.Process(process.pid).children(recursive=True)
        process.send_signal((signal.SIGKILL, signal.SIGINT)[turn % 2])
        process.stdout.close()
        assert process.wait(300) != 0
    end = time.monotonic() + _GONE_SECONDS
    runner.reap()  # the next command
    while left(runner, seconds, clients, helpers) and time.monotonic() < end:
        time.sleep(0.2)  # the life line takes a moment
    runner.reap()
    assert not left(runner, seconds, clients, helpers)
    assert not [path for path in folder.glob("executors/work/*") if path.is_dir()]
    assert str(folder) not in Path("/proc/mounts").read_text()


def left(runner: Executor, seconds: str, clients: list[int], helpers: list[psutil.Process]) -> list[str]:
    """Processes, control groups and containers of killed clients."""
    found = [
        str(process)
        for process in helpers
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(str(path))
    names = [str(path) for path in Path("/sys/fs/cgroup").glob("*/aotforge-*")]
    if runner.name in {"docker", "podman"}:
        listed = [runner.name, "ps", "--all", "--format", "{{.Names}}", "--filter", "label=aotforge.owner"]
        names += subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    return found + [name for name in names if any(f"-{client}-" in name for client in clients)]
