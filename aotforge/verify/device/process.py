"""The process of one image on a device, which may hang or end at any launch; it also lists devices.

Before and after each launch it sends a `Progress`, at the end the result or an error.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from multiprocessing.connection import Connection

from aotforge.base.hardware import Outcome
from aotforge.base.workers import open_connection
from aotforge.errors import AotforgeError, ExecutionError
from aotforge.targets.backends import backend_of_arch
from aotforge.targets.device_driver import Device
from aotforge.targets.installed import installed_devices
from aotforge.verify.check_image import Results, check_uses
from aotforge.verify.device.images import ComparedImage
from aotforge.verify.device.library import LibraryImage, Timed
from aotforge.verify.device.messages import CheckImage, DeviceResult, ShownDevice, Time, TimeImages
from aotforge.verify.executors import DeviceImage, EmulatedImage
from aotforge.verify.interpreter.dispatch import launch_of
from aotforge.verify.invocation import Cases, Invocation, LaunchCall, case_errors, load_cases, load_shaped
from aotforge.verify.verdict import UNREACHED, ImageTask
from vgpu.code_object import CodeObjectError
from vgpu.emulator.isa import approximations


def _shown(device: Device) -> ShownDevice:
    fields = {one.name: getattr(device, one.name) for one in dataclass_fields(ShownDevice)[:-1]}
    return ShownDevice(**fields, emulator=device.driver.emulator())


def check(request: CheckImage, connection: Connection) -> DeviceResult:
    """Raises RulesError for cases that do not load, ToolchainError, CacheError; not errors of the image."""
    cases = load_cases(request.kernels_root, request.task.folder)
    virtual, reason = _virtual(request)
    try:
        loaded = DeviceImage(request.task, _chosen(request))
    except (ExecutionError, CodeObjectError) as error:
        return DeviceResult.ended(request.task, "fault", f"the image cannot be loaded: {error}")
    image = ComparedImage(loaded, virtual, connection)
    found = _executed(request, image, cases)
    times: tuple[Time, ...] = ()
    not_timed = "the image did not pass"
    if not found.failures and found.runs:
        try:
            times, not_timed = _timed(request, loaded, connection)
        except ExecutionError as error:
            found.faults += 1
            found.add_error(error, "timed call: ")
    worst = max((max(one.tensor, one.element, one.tile) for one in found.outputs.values()), default=math.inf)
    return replace(
        _result(request.task, found),
        worst=worst if math.isfinite(worst) else None,
        approximated=tuple(approximations(found.counts)),
        bits=image.bits if image.bits.elements else None,
        not_compared=image.virtual_failure or reason,
        times=times,
        not_timed=not_timed,
    )


def _executed(request: CheckImage, image: ComparedImage, cases: Cases | None) -> Results:
    results = Results()
    if cases:
        check_uses(request.task, image, cases, request.kernels_root, results)
    return results


def _result(task: ImageTask, found: Results) -> DeviceResult:
    outcome: Outcome = "failed" if found.failures else "passed" if found.runs else "unverified"
    failure = found.failure or ("" if found.runs else UNREACHED)
    ended = DeviceResult.ended(task, "fault" if found.faults else outcome, failure)
    return replace(ended, cases=len(found.cases), launches=found.runs)


def time_images(request: TimeImages, connection: Connection) -> None:
    """Checks, answers, and then times calls on request. Raises RulesError, ExecutionError."""
    image = LibraryImage(_chosen(request.checks[0]), request.library, request.images, request.operator)
    for one in request.checks:
        cases = load_cases(one.kernels_root, one.task.folder)
        found = _executed(one, ComparedImage(image, None, connection), cases)
        result = _result(one.task, found)
        if result.outcome != "passed":
            connection.send(result)
            return
    calls: list[Timed] = []
    for shape in request.shapes:
        connection.send(f"timed call {_text(shape)}")
        calls.append(image.timed(_invocation(request.checks, shape), request.least))
        connection.send("")
    connection.send(result)
    with suppress(EOFError):
        while True:
            shape, launches = connection.recv()
            connection.send(f"timed call {_text(request.shapes[shape])}")
            connection.send(calls[shape](launches))


def _invocation(checks: Sequence[CheckImage], shape: Mapping[str, int]) -> Invocation:
    """A call of that shape which one of the images serves. Raises ExecutionError when none does."""
    for call in (call for one in checks for call in _served(one, shape)):
        return call.invocation
    raise ExecutionError(
        f"the image does not serve the timed call {_text(shape)}",
        cause="other images do, or the family has no call by shape",
    )


def _served(request: CheckImage, shape: Mapping[str, int]) -> Iterator[LaunchCall]:
    """Launches of a call of that shape, by the image's uses that serve it."""
    names, make = load_shaped(request.kernels_root, request.task.folder) or ({}, None)
    complete = {**names, **{name: size for name, size in shape.items() if name in names}}
    for use in request.task.uses if make else ():
        keys = dict(zip(use.kernel.keys, use.key, strict=True))
        with case_errors(request.kernels_root / request.task.folder):
            invocation = make(use.called, keys, complete).make()  # type: ignore[misc]
        launch = launch_of(use, invocation.values)
        if launch is not None and 0 not in launch.grid:
            yield LaunchCall(use=use, launch=launch, invocation=invocation, case=_text(complete))


def _text(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in shape.items()) or "of a typical shape"


def _chosen(request: CheckImage) -> Device:
    wanted = request.device
    for device in installed_devices(os.environ, request.library)[0]:
        if (device.vendor, device.number, device.arch) == (wanted.vendor, wanted.number, wanted.arch):
            return device
    raise ExecutionError(
        f"{wanted.name} ({wanted.arch}) is not available any more",
        cause="the driver lost the device, perhaps by an earlier fault",
        hint="restart the machine, then repeat the check with --only for the remaining kernels",
    )


def _virtual(request: CheckImage) -> tuple[EmulatedImage | None, str]:
    """The image on the virtual GPU, and why there is none."""
    if request.not_compared:
        return None, request.not_compared
    if backend_of_arch(request.task.arch).executed_by != "virtual GPU":
        return None, f"no virtual GPU executes {request.task.arch}"
    try:
        return EmulatedImage(request.task, request.cache), ""
    except AotforgeError as error:
        return None, f"the virtual GPU cannot execute it: {error.what}"


def _timed(request: CheckImage, image: DeviceImage, connection: Connection) -> tuple[tuple[Time, ...], str]:
    """Times of every use that serves the call, and why there are none."""
    times = []
    for call in _served(request, request.shape) if request.repeat else ():
        connection.send(f"timed call {call.case}")
        took = image.milliseconds(call, request.repeat)
        connection.send("")
        kernel, keys = call.use.kernel, dict(zip(call.use.kernel.keys, call.use.key, strict=True))
        times.append(
            Time(
                operator=kernel.operator,
                kernel=kernel.name,
                functional=_functional(request.task.label, keys),
                keys=tuple(keys.items()),
                call=call.case,
                milliseconds=took,
            )
        )
    reason = "no call of that shape is dispatched to the image" if request.repeat else "not requested"
    return tuple(times), "" if times else reason


def _functional(label: str, keys: Mapping[str, int]) -> str:
    """The choices in an image's label; the keys' numbers where that is a digest or of several jobs."""
    parts = label.split(":")
    if len(parts) == 4 and all(f"{name}=" in parts[2] for name in keys):
        return parts[2]
    return ",".join(f"{name}={number}" for name, number in keys.items())


def main(arguments: Sequence[str]) -> None:
    """Does the work that the parent requests, and ends."""
    connection, _ = open_connection(arguments)
    request = connection.recv()
    try:
        if isinstance(request, TimeImages):
            time_images(request, connection)
        elif isinstance(request, CheckImage):
            connection.send(check(request, connection))
        else:
            found, reasons = installed_devices(os.environ, request)
            connection.send((tuple(map(_shown, found)), reasons))
    except AotforgeError as error:
        connection.send(error)
    # a device's driver may wait in its own exit handlers for work that does not end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
