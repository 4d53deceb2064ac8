"""Values of a step, the interface of what runs steps, and the rootfs that they run in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aotforge.base.machine import GIB, available_cpus, available_memory
from aotforge.errors import LimitError

KERNELS, RUNTIME, WINDOWS = "rocm-kernels", "rocm-runtime", "windows-noimage"
"""Names of the rootfs images, one for each kind of part of a release."""

WORK = "{work}"
"""Placeholder of a step's folder in its command and environment."""

_KILL_SECONDS = 10
"""Time between SIGTERM and SIGKILL for a step that exceeds its time limit."""

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Receives a step's output as it is written. An exception that it raises ends the step."""


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """Limits of a step. Engines bound memory and processes of a container, others memory and files of each
    process."""

    memory_bytes: int = 4 * GIB
    processes: int = 512
    seconds: float = 3600.0
    file_bytes: int = 16 * GIB


@dataclass(frozen=True, kw_only=True)
class RootFS:
    """A root file system. `identity` names it in keys, `python` is the interpreter in it; `packed` gives its
    tar for as long as the block runs, `unpacked` its folder; both are made on demand."""

    name: str
    identity: str
    python: str
    environment: tuple[tuple[str, str], ...]
    packed: Callable[[], AbstractContextManager[Path]]
    unpacked: Callable[[], Path]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command. `{work}` in it and in its complete `environment` is a folder with `in/` (the tar `inputs`,
    unpacked) and `out/`, whose files come to the new folder `outputs` if the command exits with 0."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    inputs: bytes = b""
    outputs: Path | None = None
    on_output: OnOutput = lambda stream, data: None
    limits: StepLimits = field(default_factory=StepLimits)

    def words(self, work: str) -> list[str]:
        """The command line under its time limit, with the step's environment alone."""
        limit = ["timeout", f"--kill-after={_KILL_SECONDS}", f"{self.limits.seconds:g}"]
        own = [f"{name}={value}" for name, value in self.environment.items()]
        return [word.replace(WORK, work) for word in ("/usr/bin/env", "-i", *own, *limit, *self.command)]

    def checked(self, status: int, *, seconds: float, oom_killed: bool = False) -> int:
        """The status of this step, which ended after `seconds`. Raises LimitError."""
        amount = self.limits.memory_bytes / GIB
        if status and oom_killed:
            raise LimitError(
                f"{self.name} needs more than its limit of {amount:.3g} GiB of memory",
                hint="fewer worker processes (--jobs) need less; or run it on a machine with more",
            )
        if status in {124, 137} and seconds >= self.limits.seconds:  # of `timeout`, and of its SIGKILL
            raise LimitError(
                f"{self.name} needs more than its limit of {self.limits.seconds:g} s of time",
                hint="run it on a faster machine, or with more processes (--jobs)",
            )
        return status


class StepRunner(ABC):
    """Runs steps in a rootfs under limits."""

    name: str

    def __init__(self, folder: Path) -> None:
        """`folder` has the work folders of steps."""
        self._folder = folder

    @abstractmethod
    def run(self, step: Step, rootfs: RootFS | None) -> int:
        """Runs a step and removes what it leaves; its exit status, or 128 + signal. Local ignores `rootfs`.

        Raises LimitError, ExecutorError, CacheError, and what `on_output` raises.
        """

    def capacity(self) -> tuple[int, int]:
        """CPUs and bytes of memory of the machine that steps run on. Raises ExecutorError."""
        return available_cpus(), available_memory()

    @abstractmethod
    def prune(self) -> list[str]:
        """Removes what killed runs left; returns the names. Raises ExecutorError."""


@dataclass(frozen=True, kw_only=True)
class ExecutionTarget:
    """A runner and the rootfs that it runs steps in; None for the local runner."""

    runner: StepRunner
    rootfs: RootFS | None


Executions = Mapping[str, ExecutionTarget]
"""One for each rootfs that is used, by its name; all have the same runner."""


def rootfs_digests(executions: Executions) -> tuple[tuple[str, str], ...]:
    """Names and digests of the rootfs images."""
    images = [target.rootfs for target in executions.values()]
    return tuple((image.name, image.identity) for image in images if image is not None)
