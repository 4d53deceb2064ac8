"""Executor without isolation: steps are processes of this user."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotforge.sandbox.executors.executor import AgentRun, Executor
from aotforge.sandbox.executors.owner import reap_folders, work_folder
from aotforge.sandbox.executors.process_channel import ProcessChannel
from aotforge.sandbox.executors.session import AgentConfig, agent_command
from aotforge.sandbox.executors.step import RootFS, Step


class LocalExecutor(Executor):
    """Steps as processes of this user. `folder` is the parent of their work folders."""

    name = "local"

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder, self._keep = folder, keep

    @contextmanager
    def start_agent(self, step: Step, rootfs: RootFS | None) -> Iterator[AgentRun]:
        """Starts the agent with this Python."""
        with work_folder(self._folder) as folder:
            environment = {"PATH": os.defpath, "LC_ALL": "C"}
            channel = ProcessChannel(agent_command(sys.executable), environment=environment, what="a step")
            work = str(folder.path / "work")
            config = AgentConfig(
                folder=work,
                sandboxed=False,
                memory_bytes=step.limits.memory_bytes,
                processes=step.limits.processes,
            )
            enter = f"cd {shlex.quote(work)}" if self._keep else ""
            run = AgentRun(channel=channel, config=config, enter=enter)
            try:
                yield run
            finally:
                channel.close()
                folder.kept = run.kept

    def reap(self, *, kept: bool = False) -> list[str]:
        """Removes orphaned work folders."""
        return reap_folders(self._folder, kept=kept)
