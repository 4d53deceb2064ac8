"""The process of one image on a device, which may hang or end at any launch; it also lists devices.

The first value received selects the work; before and after each launch the process sends a `Progress`, at the
end the result or an error.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from aotforge.verify.device.library import LibraryImage, TimedCall
from aotforge.verify.device.messages import (
    CheckImage,
    DeviceResult,
    Devices,
    ListDevices,
    Progress,
    ShownDevice,
    Time,
    TimeCall,
    TimeImages,
)
from aotforge.verify.executors import DeviceImage, EmulatedImage
from aotforge.verify.interpreter.dispatch import Use, launch_of
from aotforge.verify.invocation import (
    Case,
    Cases,
    Invocation,
    LaunchCall,
    family_errors,
    load_cases,
    load_shaped,
)
from aotforge.verify.verdict import UNREACHED, ImageTask
from vgpu.code_object import CodeObjectError
from vgpu.emulator.isa import approximations


def list_devices(request: ListDevices) -> Devices:
    """All devices of all vendors."""
    found, reasons = installed_devices(os.environ, request.library)
    return tuple(map(_shown, found)), reasons


def _shown(device: Device) -> ShownDevice:
    return ShownDevice(
        vendor=device.vendor,
        number=device.number,
        name=device.name,
        arch=device.arch,
        version=device.version,
        emulator=device.driver.emulator(),
    )


def check(request: CheckImage, connection: Connection) -> DeviceResult:
    """Errors of the image are in the result. Raises RulesError for cases that do not load, ToolchainError,
    CacheError."""
    task = request.task
    cases = load_cases(request.kernels_root, task.folder)
    if cases is None:
        return DeviceResult.ended(task, "unverified", f"kernels/{task.folder} has no cases.py")
    virtual, reason = _virtual(request)
    try:
        loaded = DeviceImage(task, _chosen(request))
    except (ExecutionError, CodeObjectError) as error:
        return DeviceResult.ended(task, "fault", f"the image cannot be loaded: {error}")
    image = ComparedImage(loaded, virtual, lambda case: connection.send(Progress(case=case)))
    found = _executed(request, image, cases)
    times: tuple[Time, ...] = ()
    not_timed = "the image did not pass"
    if not found.failures and found.runs:
        try:
            times, not_timed = _timed(request, loaded, connection)
        except ExecutionError as error:
            found.faults += 1
            found.add_error(error, "timed call: ")
    worst = max((max(one.tensor, one.element, one.tile) for one in found.outputs.values()), default=0.0)
    return DeviceResult(
        key=task.key,
        digest=task.digest,
        label=task.label,
        outcome=_outcome(found),
        failure=found.failure,
        cases=len(found.cases),
        launches=found.runs,
        worst=worst if found.outputs and math.isfinite(worst) else None,
        approximated=tuple(approximations(found.counts)),
        bits=image.bits if image.bits.elements else None,
        not_compared=image.virtual_failure or reason,
        times=times,
        not_timed=not_timed,
    )  # fmt: skip


def _outcome(found: Results) -> Outcome:
    if found.faults:
        return "fault"
    return "failed" if found.failures else "passed" if found.runs else "unverified"


def time_images(request: TimeImages, connection: Connection) -> None:
    """Checks, answers, and then times calls on request. Raises RulesError for cases that do not load."""
    first = request.checks[0]
    try:
        image = LibraryImage(_chosen(first), request.library, request.images, request.operator)
    except ExecutionError as error:
        connection.send(DeviceResult.ended(first.task, "fault", str(error)))
        return
    for one in request.checks:
        result = _checked(one, image, connection)
        if result.outcome != "passed":
            connection.send(result)
            return
    calls: list[TimedCall] = []
    try:
        for shape in request.shapes:
            connection.send(Progress(case=f"timed call {_text(shape)}"))
            calls.append(image.kept(_invocation(request.checks, shape), request.least))
            connection.send(Progress(case=""))
    except ExecutionError as error:
        connection.send(DeviceResult.ended(first.task, "fault", str(error)))
        return
    connection.send(result)
    with suppress(EOFError):
        while True:
            wanted: TimeCall = connection.recv()
            connection.send(Progress(case=f"timed call {_text(request.shapes[wanted.shape])}"))
            connection.send(calls[wanted.shape].milliseconds(wanted.launches))


def _checked(request: CheckImage, image: LibraryImage, connection: Connection) -> DeviceResult:
    """The image's result on its cases, of which each launch is announced."""
    task = request.task
    cases = load_cases(request.kernels_root, task.folder)
    if cases is None:
        return DeviceResult.ended(task, "unverified", f"kernels/{task.folder} has no cases.py")
    compared = ComparedImage(image, None, lambda case: connection.send(Progress(case=case)))
    found = _executed(request, compared, cases)
    result = DeviceResult.ended(task, _outcome(found), found.failure or ("" if found.runs else UNREACHED))
    return replace(result, cases=len(found.cases), launches=found.runs)


def _invocation(checks: Sequence[CheckImage], shape: Mapping[str, int]) -> Invocation:
    """A call of that shape which one of the images serves. Raises ExecutionError when none does."""
    for one in checks:
        shaped = load_shaped(one.kernels_root, one.task.folder)
        for use in one.task.uses if shaped else ():
            names, make = shaped  # type: ignore[misc]
            keys = dict(zip(use.kernel.keys, use.key, strict=True))
            with family_errors(one.kernels_root / one.task.folder):
                invocation: Invocation = make(use.called, keys, {**names, **shape}).make()
            launch = launch_of(use, invocation.values)
            if launch is not None and 0 not in launch.grid:
                return invocation
    raise ExecutionError(
        f"the image does not serve the timed call {_text(shape)}",
        cause="other images do, or the family has no call by shape",
    )


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
    if not request.compare:
        return None, "not requested"
    if backend_of_arch(request.task.arch).executed_by != "virtual GPU":
        return None, f"no virtual GPU executes {request.task.arch}"
    try:
        return EmulatedImage(request.task, request.cache), ""
    except AotforgeError as error:
        return None, f"the virtual GPU cannot execute it: {error.what}"


def _executed(request: CheckImage, image: ComparedImage, cases: Cases) -> Results:
    results = Results()

    def noted(kernel: str, keys: Mapping[str, int]) -> list[Case]:
        return image.noted(cases(kernel, keys))

    check_uses(request.task, image, noted, request.kernels_root, results)
    return results


def _timed(request: CheckImage, image: DeviceImage, connection: Connection) -> tuple[tuple[Time, ...], str]:
    """Times of every use that serves the call, and why there are none."""
    shaped = load_shaped(request.kernels_root, request.task.folder) if request.repeat else None
    if shaped is None:
        return (), "the family has no call of a given shape" if request.repeat else "not requested"
    names, make = shaped
    shape = {**names, **{name: size for name, size in request.shape.items() if name in names}}
    times = []
    for use in request.task.uses:
        keys = dict(zip(use.kernel.keys, use.key, strict=True))
        with family_errors(request.kernels_root / request.task.folder):
            invocation = make(use.called, keys, shape).make()
        launch = launch_of(use, invocation.values)
        if launch is None or 0 in launch.grid:
            continue
        call = ", ".join(f"{name}={size}" for name, size in shape.items())
        connection.send(Progress(case=f"timed call {call}"))
        took = image.milliseconds(LaunchCall(use=use, launch=launch, invocation=invocation), request.repeat)
        connection.send(Progress(case=""))
        times.append(_time(request.task, use, keys, call, took))
    return tuple(times), "" if times else "another image serves the timed call"


def _time(task: ImageTask, use: Use, keys: Mapping[str, int], call: str, milliseconds: float) -> Time:
    return Time(
        operator=use.kernel.operator,
        kernel=use.kernel.name,
        functional=_functional(task.label, keys),
        keys=tuple(keys.items()),
        call=call,
        milliseconds=milliseconds,
    )


def _functional(label: str, keys: Mapping[str, int]) -> str:
    """The choices in an image's label, or the keys' numbers: a label may be a digest, or those of several
    jobs."""
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
        else:
            listing = isinstance(request, ListDevices)
            connection.send(list_devices(request) if listing else check(request, connection))
    except AotforgeError as error:
        connection.send(error)
    # a device's driver may wait in its own exit handlers for work that does not end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
