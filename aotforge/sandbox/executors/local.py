"""This machine as it is: no root, no walls; the agent watches memory and processes itself."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotforge.base.machine import available_cpus, available_memory
from aotforge.sandbox.executors.executor import Executor, Run
from aotforge.sandbox.executors.process_channel import ProcessChannel
from aotforge.sandbox.executors.session import AgentConfig, agent_command
from aotforge.sandbox.executors.step import Capacity, RootFS, Step
from aotforge.sandbox.executors.work_folders import WorkFolder, reap_folders, work_folder


class LocalRun(Run):
    """A process and its folder."""

    def __init__(self, channel: ProcessChannel, folder: WorkFolder, step: Step, *, keep: bool) -> None:
        self.channel = channel
        self.setting = AgentConfig(
            folder=str(folder.path / "work"),
            contained=False,
            memory_bytes=step.limits.memory_bytes,
            processes=step.limits.processes,
        )
        self._folder, self._keep = folder, keep

    def keep(self) -> str:
        """Its folder."""
        self._folder.kept = self._keep
        return f"cd {shlex.quote(self.setting.folder)}" if self._keep else ""


class LocalExecutor(Executor):
    """Steps as processes of this user. `folder` gets their work folders."""

    name = "local"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder, self._keep = folder, keep

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[Run]:
        """Start the agent with this Python."""
        with work_folder(self._folder) as folder:
            environment = {"PATH": os.defpath, "LC_ALL": "C"}
            channel = ProcessChannel(agent_command(sys.executable), environment=environment, what="a step")
            try:
                yield LocalRun(channel, folder, step, keep=self._keep)
            finally:
                channel.close()

    def capacity(self) -> Capacity:
        """This process' CPUs and memory."""
        return Capacity(cpus=available_cpus(), memory_bytes=available_memory())

    def reap(self, *, kept: bool = False) -> list[str]:
        """Folders of processes that are gone."""
        return reap_folders(self._folder, kept=kept)
