"""Values of the executors: a step, its limits, its result, and the rootfs that it runs in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aotforge.errors import LimitError

EXECUTORS = ("auto", "local", "docker", "podman", "bubblewrap")
"""Values of `--executor`. `auto` tries docker, podman, bubblewrap and local, in this order."""

KERNELS, RUNTIME, WINDOWS = "rocm-kernels", "rocm-runtime", "windows-noimage"
"""Names of the rootfs images, one for each kind of part of a release."""

GIB = 1 << 30
Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, bytes], None]
"""Receives the output of a step as it is written. An exception that it raises ends the step."""


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """Resources of a step: memory in bytes and number of processes (over all its processes), wall time in seconds, files in bytes
    (files in a tmpfs count as memory too), bytes of the outputs, which the client has in memory."""

    memory_bytes: int = 4 * GIB
    processes: int = 512
    seconds: float = 3600.0
    scratch_bytes: int = 4 * GIB
    output_bytes: int = GIB


@dataclass(frozen=True, kw_only=True)
class RootFS:
    """A root file system that steps run in. `identity` names it in keys, `python` is the interpreter in it, `image` and `image_id`
    are name and ID of its engine image; `unpacked` and `archive` create its folder or Docker archive on demand."""

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
    """One command over a tree of inputs. `{work}` in `command` and `environment` is the folder with `in/` (the tar `inputs`,
    unpacked) and `out/` (`outputs` are paths below it, returned when the command exits with 0). `environment` is complete."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    inputs: bytes
    outputs: tuple[str, ...] = ()
    limits: StepLimits = field(default_factory=StepLimits)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of a step: exit status (128 + signal when it was killed), `outputs` as a tar (empty unless the status is 0), CPU seconds
    and peak bytes of its processes, `oom_kills` (processes that the kernel killed at the memory limit, even if the step survived).
    `kept` is the command that enters what was kept for inspection, or ''."""

    status: int
    signal: int
    outputs: bytes
    cpu_seconds: float
    peak_bytes: int
    oom_kills: int
    kept: str = ""


class OutputTail:
    """The end of a step's text output: a program that prints without end must not fill the client's memory."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit, self._data = limit, bytearray()

    def add(self, data: bytes) -> None:
        """Appends; what exceeds the limit is dropped at the beginning."""
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def text(self) -> str:
        """At most `limit` bytes, as UTF-8."""
        return self._data[-self._limit :].decode("utf-8", "replace")


_LIMITS: dict[str, tuple[Callable[[StepLimits], str], str]] = {
    "memory": (
        lambda limits: f"{limits.memory_bytes / GIB:.3g} GiB of memory",
        "fewer worker processes (--jobs) need less; or run it on a machine with more",
    ),
    "seconds": (
        lambda limits: f"{limits.seconds:g} s of time",
        "run it on a faster machine, or with more processes (--jobs)",
    ),
    "outputs": (
        lambda limits: f"{limits.output_bytes / GIB:.3g} GiB of output files",
        "a program writes without end: set `keep = true` in aotforge.toml and inspect it",
    ),
    "processes": (
        lambda limits: f"{limits.processes} processes",
        "a program starts processes without end: set `keep = true` in aotforge.toml and inspect it",
    ),
}


def limit_error(step: str, limit: str, limits: StepLimits, *, detail: str = "", kept: str = "") -> LimitError:
    """The error for a step that exceeded one of its limits ("memory", "seconds", "outputs" or "processes")."""
    amount, hint = _LIMITS[limit]
    return LimitError(
        f"{step} needs more than its limit of {amount(limits)}" + (f": {detail}" if detail else ""),
        hint=hint + (f"; to inspect it: {kept}" if kept else ""),
    )
