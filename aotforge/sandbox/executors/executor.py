"""Interface of all executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

from aotforge.base.machine import available_cpus, available_memory
from aotforge.errors import LimitError
from aotforge.sandbox.executors.session import AgentConfig, Channel, Session
from aotforge.sandbox.executors.step import Capacity, OnOutput, RootFS, Step, StepResult


@dataclass(kw_only=True)
class AgentRun:
    """A started agent. `enter` is the command that enters what a failed step left; '' unless failed steps are kept."""

    channel: Channel
    config: AgentConfig
    enter: str
    kept: bool = False

    def keep(self) -> str:
        """Keeps a failed step for inspection, if that was requested; returns `enter`."""
        self.kept = bool(self.enter)
        return self.enter


class Executor(ABC):
    """Runs steps in a rootfs under limits. Executors differ only in how they start an agent."""

    name: ClassVar[str]

    def run(
        self, step: Step, rootfs: RootFS | None, *, on_output: OnOutput = lambda stream, data: None
    ) -> StepResult:
        """Runs a step; removes its files and processes in any case.

        `rootfs` is ignored by the local executor and required by the others. A status other than 0 is a result, not an error.
        Raises LimitError, ExecutorError, CacheError, and what `on_output` raises.
        """
        with self.start_agent(step, rootfs) as run:
            session = Session(run.channel, step, run.config, on_output)
            try:
                result = session.run()
            except LimitError as error:
                # an agent that exited without a result cannot be entered
                if session.has_result and (enter := run.keep()):
                    error.hint += f"; to inspect it: {enter}"
                raise
            return replace(result, kept=run.keep() if result.status else "")

    @abstractmethod
    def start_agent(self, step: Step, rootfs: RootFS | None) -> AbstractContextManager[AgentRun]:
        """Starts an agent for a step; removes it at the end unless it is kept. Raises ExecutorError, CacheError."""

    def capacity(self) -> Capacity:
        """Resources of the machine that steps run on; by default this one's. Raises ExecutorError."""
        return Capacity(cpus=available_cpus(), memory_bytes=available_memory())

    @abstractmethod
    def reap(self, *, kept: bool = False) -> list[str]:
        """Removes what killed processes left, with `kept` also what was kept for inspection. Returns the names of what was removed.
        Raises ExecutorError."""
