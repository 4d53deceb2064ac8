"""What every executor can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import ClassVar

from aotforge.errors import LimitError
from aotforge.sandbox.executors.session import AgentConfig, Channel, Session
from aotforge.sandbox.executors.step import Capacity, OnOutput, RootFS, Step, StepResult


def ignore(stream: str, data: bytes) -> None:
    """Output that nobody wants to hear."""


class Run(ABC):
    """An agent that was started, and what belongs to it."""

    channel: Channel
    setting: AgentConfig

    @abstractmethod
    def keep(self) -> str:
        """Leave a failed one for people to look at, if that was asked for: the command that enters it, else ''."""


class Executor(ABC):
    """Runs steps in a rootfs under limits. Engines differ in how they start an agent, and in nothing else."""

    name: ClassVar[str]

    def run(self, step: Step, rootfs: RootFS | None, *, on_output: OnOutput = ignore) -> StepResult:
        """Run a step to its end; nothing of it is left, whatever happens.

        `rootfs` is ignored by the local executor and needed by the others. A status other than 0 is an answer, no error. Raises
        LimitError, ExecutorError, CacheError, and what `on_output` raises.
        """
        with self.start_agent(step, rootfs) as run:
            session = Session(run.channel, step, run.setting, on_output)
            try:
                finished = session.run()
            except LimitError as error:
                # an agent that ended without an answer is not there to be entered
                if session.answered and (kept := run.keep()):
                    error.hint += f"; what it left: {kept}"
                raise
            return replace(finished, kept=run.keep() if finished.status else "")

    @abstractmethod
    def start_agent(self, step: Step, rootfs: RootFS | None) -> AbstractContextManager[Run]:
        """Start an agent for a step; at the end it is gone, unless it is to be kept. Raises ExecutorError, CacheError."""

    @abstractmethod
    def capacity(self) -> Capacity:
        """What the machine has that steps run on. Raises ExecutorError."""

    @abstractmethod
    def reap(self, *, kept: bool = False) -> list[str]:
        """Remove what earlier processes left when they died; also what was kept, if asked. The names of what was removed. Raises
        ExecutorError."""
