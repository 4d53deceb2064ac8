"""Clients that are killed at any moment: after the next command no container, process, folder, control group or mount of theirs is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aotforge.executors import Place
from aotforge.executors.docker import DockerExecutor
from aotforge.executors.podman import PodmanExecutor
from tests.support.places import NAMES, ROOT, executor, small_place

_GONE_SECONDS = 20


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return small_place(tmp_path_factory.mktemp("small-root"))


@pytest.mark.parametrize("name", NAMES)
def test_two_kills(name: str, place: Place, tmp_path: Path) -> None:
    kill_often(name, place, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_twenty_kills(name: str, place: Place, tmp_path: Path) -> None:
    kill_often(name, place, tmp_path, 20)


def kill_often(name: str, place: Place, folder: Path, times: int) -> None:
    runner = executor(name, folder)
    file = folder / "place.json"
    fields = {"tree": str(place.unpacked()), "archive": str(place.archive())}
    fields |= {key: getattr(place, key) for key in ("name", "identity", "python", "image", "image_id")}
    file.write_text(json.dumps(fields))
    dice = random.Random()  # random on purpose: what must hold, holds at every moment
    before = owned()
    for turn in range(times):
        number = (signal.SIGKILL, signal.SIGINT)[turn % 2]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.executors.driver", name, str(folder), str(file)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        while process.stdout.readline() not in {"start\n", ""}:
            pass
        time.sleep(dice.uniform(0, 0.8) if name != "podman" else dice.uniform(0, 1.6))
        process.send_signal(number)
        process.stdout.close()
        assert process.wait(60) != 0
    end = time.monotonic() + _GONE_SECONDS
    runner.reap()  # the next command
    while (left := owned() - before) and time.monotonic() < end:
        time.sleep(0.2)  # the life line takes a moment
        runner.reap()
    assert not left
    assert not [path for path in folder.glob("executors/work/*") if path.is_dir()]
    assert not _containers(runner)
    mounts = Path("/proc/mounts").read_text()
    assert str(folder) not in mounts


def owned() -> set[str]:
    """Processes of killed steps, and control groups."""
    found = {str(path) for path in Path("/sys/fs/cgroup").glob("*/aotforge-*")}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", b"619"] or any(b"aotforge_agent" in word for word in words):
            found.add(str(path))
    return found


def _containers(runner: object) -> list[str]:
    if isinstance(runner, DockerExecutor | PodmanExecutor):
        program = runner.name
        listed = ["ps", "--all", "--quiet", "--filter", "label=aotforge.owner", "--filter", "status=exited"]
        return subprocess.run([program, *listed], capture_output=True, text=True, check=True).stdout.split()
    return []
