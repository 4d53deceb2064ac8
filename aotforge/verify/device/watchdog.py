"""Starts a process per image on a device, and ends it when a launch does not.

Faults and hangs become results that name the image.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from aotforge.base.child_processes import PRELOADED, child_environment
from aotforge.base.workers import WorkerEnded, WorkerProcess, import_path
from aotforge.errors import AotforgeError, ExecutionError
from aotforge.verify.device.messages import (
    CheckImage,
    DeviceResult,
    Devices,
    ListDevices,
    Progress,
    TimeCall,
    TimeImages,
)
from aotforge.verify.verdict import ImageTask

_LIST_SECONDS = 120.0  # a driver's first start may compile or load firmware


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds of one launch on the device with its copies, and of everything between two launches."""

    launch: float = 60.0
    between: float = 900.0


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """The end of a process without a result. `case`: what the device executed, '' for nothing.

    `stuck`: the process is still there.
    """

    case: str
    hang: bool
    text: str
    stuck: bool

    def result(self, task: ImageTask) -> DeviceResult:
        """As that of the image."""
        where = f"{self.case}: " if self.case else ""
        return DeviceResult.ended(task, "hang" if self.hang else "fault", f"{where}{self.text}")


def shown_devices(library: str | None) -> Devices:
    """The devices of this machine, by a process of its own. Raises ExecutionError when the driver does not
    answer."""
    answer = _run(ListDevices(library=library), Limits(launch=_LIST_SECONDS, between=_LIST_SECONDS))
    if isinstance(answer, _Ended):
        raise ExecutionError(
            f"the GPU's driver does not list its devices: {answer.text}",
            cause="the driver hangs or fails, perhaps after an earlier fault",
            hint="dmesg shows the driver's messages; restart the machine",
        )
    found: Devices = answer  # type: ignore[assignment]
    return found


def check_on_device(request: CheckImage, limits: Limits) -> tuple[DeviceResult, bool]:
    """The result of an image, and False when its process cannot be ended. Raises its RulesError,
    CacheError."""
    answer = _run(request, limits)
    if not isinstance(answer, _Ended):
        assert isinstance(answer, DeviceResult)
        return answer, True
    return answer.result(request.task), not answer.stuck


class DeviceSession:
    """A process that has checked images and times their calls until it is closed."""

    def __init__(self, request: TimeImages, limits: Limits) -> None:
        self._request, self._limits = request, limits
        self._worker: WorkerProcess | None = _start()
        self.free = True

    def check(self) -> DeviceResult:
        """The result of the check; of one that is not `passed` no call can be timed. Raises its
        RulesError."""
        answer = self._request_answer(self._request)
        assert isinstance(answer, DeviceResult)
        return answer

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        """Times of a call, or how the process ended."""
        return self._request_answer(TimeCall(shape=shape, launches=launches))  # type: ignore[return-value]

    def close(self) -> None:
        """End the process. Safe to call again."""
        if self._worker is not None:
            self.free = self._worker.kill() and self.free
        self._worker = None

    def _request_answer(self, request: object) -> object:
        assert self._worker is not None
        answer = _exchange(self._worker, request, self._limits)
        if isinstance(answer, _Ended):
            self._worker, self.free = None, not answer.stuck
            return answer.result(self._request.checks[0].task)
        if isinstance(answer, AotforgeError):
            self.close()
            if isinstance(answer, ExecutionError):  # of a timed call
                return DeviceResult.ended(self._request.checks[0].task, "fault", str(answer))
            raise answer
        return answer


def _run(request: object, limits: Limits) -> object:
    """The process's answer. Raises its error."""
    worker = _start()
    answer = _exchange(worker, request, limits)
    if isinstance(answer, _Ended):
        return answer
    worker.kill()
    if isinstance(answer, AotforgeError):
        raise answer
    return answer


def _exchange(worker: WorkerProcess, request: object, limits: Limits) -> object:
    """The answer of a process, which continues, or how it ended."""
    case = ""
    seconds = limits.between
    try:
        worker.send(request)
        while True:
            seconds = limits.launch if case or isinstance(request, ListDevices) else limits.between
            answer = worker.receive(seconds)
            if not isinstance(answer, Progress):
                return answer
            case = answer.case
    except WorkerEnded as ended:
        text = f"no end after {seconds:g} s" if ended.hang else f"the process {ended.reason}"
        if ended.output and not ended.hang:
            text += f": {ended.output}"
        return _Ended(case=case, hang=ended.hang, text=text, stuck=not worker.kill())


def _start() -> WorkerProcess:
    modules = {"PYTHONPATH": os.pathsep.join(import_path())}
    environment = child_environment(modules, keep=PRELOADED)
    return WorkerProcess("aotforge.verify.device.process", environment=environment)
