"""Interface of all executors, and the executors that a build runs its steps in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

from aotforge.base.machine import available_cpus, available_memory
from aotforge.errors import LimitError
from aotforge.sandbox.executors.session import AgentConfig, Channel, Session
from aotforge.sandbox.executors.step import KERNELS, RUNTIME, WINDOWS, OnOutput, RootFS, Step, StepResult


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Usable CPUs and bytes of memory of the machine that steps run on."""

    cpus: int
    memory_bytes: int


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


@dataclass(frozen=True, kw_only=True)
class ExecutionTarget:
    """An executor and the rootfs that it runs steps in; None for the local executor."""

    executor: Executor
    rootfs: RootFS | None


@dataclass(frozen=True, kw_only=True)
class ExecutionTargets:
    """Execution targets of a build by the names of their rootfs images, and the executor's name; only the requested ones."""

    executor: str
    by_rootfs: Mapping[str, ExecutionTarget]

    @property
    def kernels(self) -> ExecutionTarget:
        """Compiles kernels."""
        return self.by_rootfs[KERNELS]

    @property
    def runtime(self) -> ExecutionTarget:
        """Builds the library for Linux."""
        return self.by_rootfs[RUNTIME]

    @property
    def windows(self) -> ExecutionTarget:
        """Builds the library for Windows."""
        return self.by_rootfs[WINDOWS]

    def rootfs_digests(self) -> tuple[tuple[str, str], ...]:
        """Names and digests of the rootfs images."""
        images = [target.rootfs for target in self.by_rootfs.values()]
        return tuple((image.name, image.identity) for image in images if image is not None)
