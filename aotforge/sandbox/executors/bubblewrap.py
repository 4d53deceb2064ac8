"""Bubblewrap: the root's folder read-only, own namespaces, no daemon, no image; also without root."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aotforge.base.machine import available_cpus, available_memory
from aotforge.errors import ExecutorError
from aotforge.sandbox.executors.cgroups import ControlGroups, reap_groups
from aotforge.sandbox.executors.executor import Executor, Run
from aotforge.sandbox.executors.process_channel import ProcessChannel
from aotforge.sandbox.executors.session import UID, WORK, AgentConfig, agent_command
from aotforge.sandbox.executors.step import Capacity, RootFS, Step
from aotforge.sandbox.executors.work_folders import WorkFolder, reap_folders, work_folder

_PROBE_SECONDS = 30


class GroupedChannel(ProcessChannel):
    """A process in control groups, which count for it."""

    groups: ControlGroups

    def counters(self) -> Mapping[str, int]:
        """Of the groups."""
        return self.groups.counters()


class BubblewrapRun(Run):
    """A sandbox, and its work folder if that is to be kept."""

    def __init__(self, channel: GroupedChannel, step: Step, enter: str, folder: WorkFolder) -> None:
        self.channel = channel
        watched = not channel.groups.folders
        self.setting = AgentConfig(
            folder=WORK,
            contained=True,
            uid=UID,
            memory_bytes=step.limits.memory_bytes if watched else None,
            processes=step.limits.processes if watched else None,
        )
        self._enter, self._folder = enter, folder

    def keep(self) -> str:
        """The sandbox again, with the files that the step left."""
        self._folder.kept = bool(self._enter)
        return self._enter


class BubblewrapExecutor(Executor):
    """Steps in sandboxes of bubblewrap. `folder` gets work folders that are to be kept."""

    name = "bubblewrap"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise ExecutorError(
                "bubblewrap is not installed",
                cause="there is no bwrap on PATH",
                hint="apt-get install bubblewrap, or another --executor",
            )
        self._program, self._folder, self._keep = program, folder, keep
        self._probe()

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[Run]:
        """Start the agent in a sandbox."""
        assert rootfs is not None
        root = rootfs.unpacked()
        with work_folder(self._folder) as folder:
            words = self._words(root, step, folder.path if self._keep else None)
            groups = ControlGroups(memory_bytes=step.limits.memory_bytes, processes=step.limits.processes + 8)
            try:
                channel = GroupedChannel(
                    [*words, *agent_command(rootfs.python)],
                    environment={"PATH": os.defpath},
                    what="bubblewrap",
                    before=groups.joining(),
                )
                channel.groups = groups
                try:
                    yield BubblewrapRun(
                        channel, step, shlex.join([*words, "/bin/sh"]) if self._keep else "", folder
                    )
                finally:
                    channel.close()
            finally:
                groups.remove()

    def _words(self, root: Path, step: Step, kept: Path | None) -> list[str]:
        words = [self._program, *_namespaces(), "--die-with-parent", "--new-session", "--clearenv"]
        # its /dev is a file system in memory without a limit, which a user without root could write to
        words += ["--ro-bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        if kept is None:
            words += ["--perms", "1777", "--size", str(step.limits.scratch_bytes), "--tmpfs", "/tmp"]
        else:
            kept.chmod(0o1777)
            words += ["--bind", str(kept), "/tmp"]
        return [*words, "--chdir", "/", "--setenv", "PATH", "/usr/bin:/bin"]

    def _probe(self) -> None:
        """Whether the kernel lets this user make namespaces. Raises ExecutorError."""
        command = [self._program, *_namespaces(), "--die-with-parent", "--ro-bind", "/", "/", "true"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
            )
            trouble = done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            trouble = str(error) or "no answer"
        if trouble:
            raise ExecutorError(
                f"bubblewrap cannot make a sandbox here: {trouble.splitlines()[-1]}",
                cause="the kernel does not let this user make namespaces, as inside many containers",
                hint="allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), or another --executor",
            )

    def capacity(self) -> Capacity:
        """This process' CPUs and memory."""
        return Capacity(cpus=available_cpus(), memory_bytes=available_memory())

    def reap(self, *, kept: bool = False) -> list[str]:
        """Folders and control groups of processes that are gone."""
        return reap_folders(self._folder, kept=kept) + reap_groups()


def _namespaces() -> list[str]:
    """All of them for a user; for root all but the user's own, because files of a root's owner would be writable to whom it maps to: the
    agent gives up being root instead."""
    if os.geteuid() != 0:
        return ["--unshare-all", "--unshare-user", "--uid", str(UID), "--gid", str(UID)]
    own = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    return [*own, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
