"""Podman through its command line: no daemon, also without root."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aotforge.base.machine import available_cpus, available_memory
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors import owner
from aotforge.sandbox.executors.executor import Executor, Run
from aotforge.sandbox.executors.pending import PendingContainers
from aotforge.sandbox.executors.process_channel import ProcessChannel
from aotforge.sandbox.executors.session import (
    KEEP_ALIVE_SECONDS,
    UID,
    WORK,
    AgentConfig,
    AgentExit,
    agent_command,
)
from aotforge.sandbox.executors.step import Capacity, RootFS, Step

_COMMAND_SECONDS = 120
_LOAD_SECONDS = 1800
_SPARE_PROCESSES = 8
_SPARE_SECONDS = 600

_RLIMITS = (("nofile", resource.RLIMIT_NOFILE, 16384), ("nproc", resource.RLIMIT_NPROC, 16384))
"""Podman would raise these to its own figures, which not every root may; they bound the user, not the step."""
_HYBRID = Path("/sys/fs/cgroup/unified")


class PodmanChannel(ProcessChannel):
    """`podman run` in the foreground: its streams are the container's, and it ends when they end."""

    executor: PodmanExecutor
    container: str

    def ended(self) -> AgentExit:
        """What podman says about the container, else what it printed."""
        state = self.executor.state(self.container)
        return AgentExit(limit="memory") if state.get("OOMKilled") else super().ended()


class PodmanRun(Run):
    """A container."""

    def __init__(self, channel: PodmanChannel, *, keep: bool) -> None:
        self.channel = channel
        self.setting = AgentConfig(folder=WORK, contained=True, linger=KEEP_ALIVE_SECONDS if keep else 0)
        self.kept = False
        self._name, self._keep = channel.container, keep

    def keep(self) -> str:
        """The container, in which the agent stays."""
        self.kept = self._keep
        return f"podman exec -it -w {WORK} {self._name} /bin/sh" if self._keep else ""


class PodmanExecutor(Executor):
    """Steps in containers of podman."""

    name = "podman"

    def __init__(self, pending: PendingContainers, *, keep: bool = False) -> None:
        program = shutil.which("podman")
        if program is None:
            raise ExecutorError(
                "podman is not installed",
                cause="there is no podman on PATH",
                hint="apt-get install podman, or another --executor",
            )
        self._program, self._pending, self._keep = program, pending, keep
        self._runtime = self._find_runtime()

    def _find_runtime(self) -> list[str]:
        """Options that choose an OCI runtime: crun refuses machines with both versions of control groups mounted, runc does not."""
        host = json.loads(self._command("looking at podman", "info", "--format", "json"))["host"]
        hybrid = host.get("cgroupVersion") == "v1" and _HYBRID.is_dir()
        runc = shutil.which("runc") if hybrid and host["ociRuntime"]["name"] == "crun" else None
        return ["--runtime", runc] if runc else []

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[Run]:
        """`podman run` as a process."""
        assert rootfs is not None
        self._require_image(rootfs)
        name = owner.new_name(owner.this_process())
        run: PodmanRun | None = None
        self._pending.add(name)
        try:
            channel = PodmanChannel(
                self._run_words(name, step, rootfs), environment=dict(os.environ), what="podman"
            )
            channel.executor, channel.container = self, name
            run = PodmanRun(channel, keep=self._keep)
            try:
                yield run
            finally:
                if not run.kept:
                    channel.close()
        except BaseException:
            if run is None or not run.kept:
                self._remove(name)
            self._pending.drop(name)
            raise
        if not run.kept:
            self._remove(name)
        self._pending.drop(name)

    def _run_words(self, name: str, step: Step, rootfs: RootFS) -> list[str]:
        limits = step.limits
        seconds = (KEEP_ALIVE_SECONDS if self._keep else 0) + limits.seconds + _SPARE_SECONDS
        words = [self._program, *self._runtime, "run", "--name", name, "--interactive", "--pull", "never"]
        for key, value in owner.labels(owner.this_process(), seconds=seconds, keep=self._keep).items():
            words += ["--label", f"{key}={value}"]
        # podman would hand on this machine's proxy settings, which may hold a password; there is no network to use them on
        words += ["--http-proxy=false", "--network", "none"]
        words += ["--read-only", "--read-only-tmpfs=false", "--user", f"{UID}:{UID}"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none"]
        words += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
        words += ["--pids-limit", str(limits.processes + _SPARE_PROCESSES), "--workdir", "/"]
        scratch = f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch_bytes}"
        words += ["--tmpfs", f"/tmp:{scratch}", "--env", "PATH=/usr/bin:/bin", "--entrypoint", "[]"]
        for limit, number, most in _RLIMITS:
            bound = resource.getrlimit(number)[1]
            least = most if bound == resource.RLIM_INFINITY else min(most, bound)
            words += ["--ulimit", f"{limit}={least}:{least}"]
        return [*words, rootfs.image_id, *agent_command(rootfs.python)]

    def _require_image(self, rootfs: RootFS) -> None:
        found = subprocess.run(
            [self._program, "image", "exists", rootfs.image_id], capture_output=True, check=False
        )
        if found.returncode != 0:
            self._command(
                f"loading {rootfs.image}",
                "load",
                "--quiet",
                "--input",
                str(rootfs.archive()),
                seconds=_LOAD_SECONDS,
            )

    def state(self, name: str) -> dict[str, Any]:
        """A container's state; empty when it is not there."""
        with suppress(ExecutorError, ValueError, LookupError):
            text = self._command("looking at a container", "inspect", "--type", "container", name)
            state = json.loads(text)[0]["State"]
            if isinstance(state, dict):
                return state
        return {}

    def _remove(self, name: str) -> None:
        # what cannot be removed now, the next command's reaper finds by its labels
        with suppress(ExecutorError):
            self._command(
                "removing a container", "rm", "--force", "--ignore", "--volumes", "--time", "0", name
            )

    def _remove_late(self, name: str) -> bool:
        if self.state(name):
            self._remove(name)
            return not self.state(name)
        return False

    def _command(self, doing: str, *words: str, seconds: float = _COMMAND_SECONDS) -> str:
        try:
            done = subprocess.run(
                [self._program, *words],
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                start_new_session=True,
            )
            trouble = done.stderr.strip() if done.returncode else ""
            if not done.returncode:
                return done.stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            trouble = str(error)
        full = "no space left" in trouble.lower()
        raise ExecutorError(
            f"podman failed: {doing}",
            cause=trouble.splitlines()[-1] if trouble else "it says nothing",
            hint="make room where podman keeps its images (podman system df)"
            if full
            else "podman info shows whether it works for this user; or choose another --executor",
        )

    def capacity(self) -> Capacity:
        """This process' CPUs and memory."""
        return Capacity(cpus=available_cpus(), memory_bytes=available_memory())

    def reap(self, *, kept: bool = False) -> list[str]:
        """Containers of processes that are gone."""
        text = self._command(
            "looking for abandoned containers",
            "ps",
            "--all",
            "--filter",
            f"label={owner.LABEL}",
            "--format",
            "json",
        )
        removed = []
        for container in json.loads(text or "[]") or []:
            marks = container.get("Labels") or {}
            if owner.abandoned(marks, now=time.time()) or (kept and owner.releasable(marks)):
                self._remove(container["Id"])
                removed.append(str(container["Names"][0]))
        return removed + self._pending.reap(removed, self._remove_late)
