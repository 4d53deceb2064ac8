"""Values of the executors: a step, its limits, how it ended, where it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aotforge.errors import LimitError

if TYPE_CHECKING:
    from aotforge.sandbox.executors.executor import Executor

EXECUTORS = ("auto", "local", "docker", "podman", "bubblewrap")
"""What `--executor` takes. `auto` tries docker, podman, bubblewrap and local, in this order."""

KERNELS = "rocm-kernels"
RUNTIME = "rocm-runtime"
WINDOWS = "windows-noimage"
"""The roots: one for each kind of part that a build makes."""

GIB = 1 << 30
Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, bytes], None]
"""Hears of what a step writes, as it is written. An exception that it raises ends the step."""


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """What a step may use: bytes of memory and number of processes (all of its processes together), seconds of wall time, bytes of files
    (where files lie in memory, they count as memory too)."""

    memory_bytes: int = 4 * GIB
    processes: int = 512
    seconds: float = 3600.0
    scratch_bytes: int = 4 * GIB


@dataclass(frozen=True, kw_only=True)
class RootFS:
    """A root file system that steps run in. `identity` names it in keys, `python` is the interpreter in it, `image` the name and
    ID that engines know it by; `unpacked` and `archive` make its folder or Docker archive when one is needed."""

    name: str
    identity: str
    python: str
    environment: tuple[tuple[str, str], ...]
    image: str
    image_id: str
    unpacked: Callable[[], Path]
    archive: Callable[[], Path]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command over a tree of inputs. `{work}` in words and variables is the folder with `in/` (the tar `inputs`, unpacked) and `out/`
    (`outputs` are paths below it, sent back when the command ends with 0). `environment` is the command's whole environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    inputs: bytes
    outputs: tuple[str, ...] = ()
    limits: StepLimits = field(default_factory=StepLimits)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """How a step ended: exit status (128 + signal when it was killed), `outputs` as a tar (empty unless the status is 0), CPU seconds and peak
    bytes of its processes, `oom_kills` (processes that the kernel killed at the memory limit, seen even when the step survived them).
    `kept` is the command that enters what was left for people to look at, '' when nothing was."""

    status: int
    signal: int
    outputs: bytes
    cpu_seconds: float
    peak_bytes: int
    oom_kills: int
    kept: str = ""


@dataclass(frozen=True, kw_only=True)
class ExecutionTarget:
    """An executor and a root that it runs steps in; the local executor has none."""

    executor: Executor
    rootfs: RootFS | None


@dataclass(frozen=True, kw_only=True)
class ExecutionTargets:
    """Where the parts of a build are made, by the names of their roots, and the executor's name. Only what was asked for is there."""

    executor: str
    made: Mapping[str, ExecutionTarget]

    @property
    def kernels(self) -> ExecutionTarget:
        """Where kernels are compiled."""
        return self.made[KERNELS]

    @property
    def runtime(self) -> ExecutionTarget:
        """Where the library for Linux is built."""
        return self.made[RUNTIME]

    @property
    def windows(self) -> ExecutionTarget:
        """Where the library for Windows is built."""
        return self.made[WINDOWS]

    def roots(self) -> tuple[tuple[str, str], ...]:
        """Names and digests of the roots."""
        places = [execution.rootfs for execution in self.made.values()]
        return tuple((rootfs.name, rootfs.identity) for rootfs in places if rootfs is not None)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the machine that steps run on has: CPUs and bytes of memory that may be used."""

    cpus: int
    memory_bytes: int


_LIMITS = {
    "memory": lambda limits: f"{limits.memory_bytes / GIB:.3g} GiB of memory",
    "seconds": lambda limits: f"{limits.seconds:g} s of time",
    "processes": lambda limits: f"{limits.processes} processes",
}
_HINTS = {
    "memory": "fewer worker processes (--jobs) need less; or run it where there is more",
    "seconds": "run it on a faster machine, or with more processes (--jobs)",
    "processes": "something starts processes without end: run the step with --keep and look",
}


def limit_error(step: str, limit: str, limits: StepLimits, *, detail: str = "", kept: str = "") -> LimitError:
    """The error for a step that met one of its limits ("memory", "seconds" or "processes")."""
    return LimitError(
        f"{step} needs more than its limit of {_LIMITS[limit](limits)}" + (f": {detail}" if detail else ""),
        hint=_HINTS[limit] + (f"; what it left: {kept}" if kept else ""),
    )
