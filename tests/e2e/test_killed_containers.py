"""Builds in containers, killed at any moment: the next command takes away what was left, and the build after it ends as if undisturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.checkouts import (
    HOME,
    ROOT,
    build_json,
    command,
    environment,
    invoke,
    share_interpreter,
    tarballs,
)
from tests.support.rootfs import SANDBOXED, cache, executor, project_rootfs

pytestmark = pytest.mark.compiler

_GONE_SECONDS = 120
_WATCH_SECONDS = 0.05
_LONGEST_SECONDS = float(os.environ.get("AOTFORGE_TEST_KILL_SECONDS") or 45)
"""A build over an empty cache of images takes about so long on two cores."""


class Watcher:
    """All processes that a build starts, polled until the build is killed; shorter ones may be missed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.seen: set[psutil.Process] = set()
        self._process = psutil.Process(process.pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_WATCH_SECONDS):
            with suppress(psutil.NoSuchProcess):
                self.seen |= set(self._process.children(recursive=True))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass
class Killing:
    """Builds that were killed, and all that they had started. Other tests run beside this one: what is ours has our clients' numbers in its name."""

    folder: Path
    clients: list[int] = field(default_factory=list)
    started: set[psutil.Process] = field(default_factory=set)
    volumes: dict[str, set[str]] = field(default_factory=dict)
    first: int = field(default_factory=lambda: random.randrange(2))

    @property
    def settings(self) -> dict[str, str]:
        return {"AOTFORGE_HOME": str(HOME), "TMPDIR": str(self.folder / "temporary")}

    def kill(self, name: str, turn: int, *, seconds: float, at_step: bool = False) -> None:
        """A build that is interrupted so long after its start, or after that of its first big step, as a terminal does it, or killed."""
        before = self.staged()
        if name != "bubblewrap":
            self.volumes.setdefault(name, volumes(name))
        arguments = ["build", "--arch", "gfx908", "--profile", "smoke", "--no-verify", "--executor", name]
        arguments += ["--cache", str(self.folder / "cache"), "--output", str(self.folder / "out")]
        log = self.folder / f"log-{turn}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command(*arguments), cwd=ROOT, env=environment(ROOT, self.settings), stdout=file, stderr=file,
                # its own group, as a terminal gives it; shells start what is in the background with SIGINT ignored
                start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - the watcher comes later
            )  # fmt: skip
        self.clients.append(process.pid)
        watcher = Watcher(process)
        while at_step and not self.staged() - before and process.poll() is None:
            time.sleep(0.05)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        ended = process.poll() is not None
        watcher.stop()
        hard = (turn + self.first) % 2 == 1
        with suppress(ProcessLookupError):
            process.kill() if hard else os.killpg(process.pid, signal.SIGINT)
        code = process.wait(300)
        self.started |= watcher.seen
        how = "SIGKILL" if hard else "SIGINT"
        self.record(
            f"{turn}: {name}, {how} after {seconds:.1f} s, exit {code}, saw {len(watcher.seen)} processes"
        )
        # a signal that arrives while the build's process ends changes nothing
        assert ended or code != 0 or "release in " in log.read_text(), log.read_text()

    def sweep(self) -> None:
        """The next command; then nothing is left."""
        output = invoke(
            ROOT, "containers.reap", "--cache", str(self.folder / "cache"), env=self.settings
        ).stdout
        self.record(output)
        end = time.monotonic() + _GONE_SECONDS
        while self.left() and time.monotonic() < end:
            time.sleep(0.1)  # a process that was killed takes a moment
        assert not self.left(), output

    def staged(self) -> set[Path]:
        """Where libraries are being built, or were when their builds were killed."""
        return set((self.folder / "cache" / "runtime").glob(".*staged*"))

    def record(self, text: str) -> None:
        """Writes to the files that pytest keeps of a failure."""
        with (self.folder / "story").open("a") as file:
            file.write(text.rstrip() + "\n")

    def left(self) -> list[str]:
        """Processes, containers, volumes, control groups, mounts, folders."""
        found = [
            str(one) for one in self.started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE
        ]
        names = [str(path) for path in Path("/sys/fs/cgroup").glob("**/aotforge-*")]
        for engine, before in self.volumes.items():
            names += listed(engine)
            found += sorted(volumes(engine) - before)
        found += [name for name in names if any(f"-{client}-" in name for client in self.clients)]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(self.folder) in line]
        # a podman that was killed while it loaded an image leaves a folder of its own, storageNNN, which no command of ours made
        found += [
            str(path) for path in (self.folder / "temporary").iterdir() if not path.name.startswith("storage")
        ]
        return found + [str(path) for path in (self.folder / "cache" / "executors").glob("*/aotforge-*")]


@pytest.fixture
def killing(tmp_path: Path) -> Killing:
    """A cache without images, over the shared store of roots; temporary files have a folder of their own."""
    for root in ("rocm-kernels", "rocm-runtime"):
        project_rootfs(root)
    for name in SANDBOXED:
        executor(name, tmp_path)
    (tmp_path / "temporary").mkdir()
    store(tmp_path / "cache")
    return Killing(tmp_path)


def store(folder: Path) -> None:
    """A cache that has roots and sources, and nothing that was made of them."""
    share_interpreter(folder)
    for part in ("containers", "sources"):
        (cache() / part).mkdir(exist_ok=True)
        (folder / part).symlink_to(cache() / part)


def test_three_kills(killing: Killing) -> None:
    for turn, name in enumerate(SANDBOXED):
        killing.kill(name, turn, seconds=random.uniform(0, 2), at_step=True)
    killing.sweep()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_kills_and_then_a_complete_build(killing: Killing) -> None:
    place = killing.folder
    for turn in range(20):
        if (
            turn == 10
        ):  # the first half was killed in the library mostly; now it is there, and the second is killed in the images
            complete(killing, place / "cache", place / "out")
            shutil.rmtree(place / "out")
        shutil.rmtree(place / "cache" / "images-1", ignore_errors=True)
        killing.kill(SANDBOXED[turn % len(SANDBOXED)], turn, seconds=random.uniform(0.5, _LONGEST_SECONDS))
        killing.sweep()
    disturbed = complete(killing, place / "cache", place / "out")
    store(place / "other")
    undisturbed = complete(killing, place / "other", place / "other-out")
    assert tarballs(disturbed) == tarballs(undisturbed) and disturbed["damaged"] == []
    killing.sweep()
    # what a killed assembly or build of the library had staged is gone
    assert [sorted(path.name for path in (place / out).iterdir()) for out in ("out", "other-out")] == [
        sorted([disturbed["release"], f".{disturbed['release']}.lock", f".{disturbed['release']}.stamp.json"])
    ] * 2
    assert not killing.staged()


def complete(killing: Killing, folder: Path, output: Path) -> dict[str, Any]:
    """A build without interruption."""
    common = ("--profile", "smoke", "--no-verify", "--executor", "bubblewrap")
    return build_json(ROOT, *common, "--cache", str(folder), "--output", str(output), env=killing.settings)


def listed(engine: str) -> list[str]:
    """Names of all containers of ours that an engine has."""
    words = [engine, "ps", "--all", "--format", "{{.Names}}", "--filter", "label=aotforge.owner"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def volumes(engine: str) -> set[str]:
    """Names of all volumes that an engine has."""
    words = [engine, "volume", "ls", "--quiet"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
