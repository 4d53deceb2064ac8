"""Starts a process per image on a device, and ends it when a launch does not.

Faults and hangs become results that name the image.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from aotforge.base.child_processes import PRELOADED, child_environment
from aotforge.base.workers import WorkerEnded, WorkerProcess, import_path
from aotforge.errors import AotforgeError, ExecutionError
from aotforge.verify.device.messages import CheckImage, DeviceResult, Devices, Progress, TimeImages

_LIST_SECONDS = 120.0  # a driver's first start may compile or load firmware


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds of one launch on the device with its copies, and of everything between two launches."""

    launch: float = 60.0
    between: float = 900.0


def shown_devices(library: str | None) -> Devices:
    """The devices of this machine. Raises ExecutionError when the driver does not answer."""
    worker, limits = _start(), Limits(launch=_LIST_SECONDS, between=_LIST_SECONDS)
    try:
        answer = _exchange(worker, library, limits)
    except WorkerEnded as ended:
        raise ExecutionError(
            f"the GPU's driver does not list its devices: {ended.reason}",
            cause="the driver hangs or fails, perhaps after an earlier fault",
            hint="dmesg shows the driver's messages; restart the machine",
        ) from ended
    finally:
        worker.kill()
    if isinstance(answer, AotforgeError):
        raise answer
    return answer  # type: ignore[no-any-return]


def check_on_device(request: CheckImage, limits: Limits) -> tuple[DeviceResult, bool]:
    """An image's result, and False when its process cannot be ended. Raises its RulesError, CacheError."""
    session = DeviceSession(request, limits)
    result = session.check()
    session.close()
    return result, session.free


class DeviceSession:
    """A process that checks images, and may time their calls until it is closed."""

    def __init__(self, request: CheckImage | TimeImages, limits: Limits) -> None:
        self._request, self._limits = request, limits
        self._worker: WorkerProcess | None = _start()
        self.free = True

    def check(self) -> DeviceResult:
        """The result of the check. Raises its RulesError, CacheError."""
        return self._answer(self._request)  # type: ignore[no-any-return]

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        """Times of a call, or how the process ended."""
        return self._answer((shape, launches))  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process. Safe to call again."""
        if self._worker is not None:
            self.free = self._worker.kill() and self.free
        self._worker = None

    def _answer(self, request: object) -> Any:
        assert self._worker is not None
        try:
            answer = _exchange(self._worker, request, self._limits)
        except WorkerEnded as ended:
            self.close()
            return DeviceResult.ended(self._request.task, "hang" if ended.hang else "fault", ended.reason)
        if isinstance(answer, AotforgeError):
            self.close()
            if isinstance(answer, ExecutionError):
                return DeviceResult.ended(self._request.task, "fault", str(answer))
            raise answer
        return answer


def _exchange(worker: WorkerProcess, request: object, limits: Limits) -> Any:
    """The answer of a process, which continues. Raises WorkerEnded that names the case."""
    case, seconds = "", limits.between
    try:
        worker.send(request)
        while True:
            answer = worker.receive(seconds)
            if not isinstance(answer, Progress):
                return answer
            case = answer
            seconds = limits.launch if case else limits.between
    except WorkerEnded as ended:
        text = f"no end after {seconds:g} s" if ended.hang else f"the process {ended.reason}"
        if ended.output and not ended.hang:
            text += f": {ended.output}"
        raise WorkerEnded(f"{case}: {text}" if case else text, hang=ended.hang) from ended


def _start() -> WorkerProcess:
    modules = {"PYTHONPATH": os.pathsep.join(import_path())}
    environment = child_environment(modules, keep=PRELOADED)
    return WorkerProcess("aotforge.verify.device.process", environment=environment)
