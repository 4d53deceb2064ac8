"""Checks every image of a release on a GPU of this machine, one process after the other."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.hardware import HardwareReport, ReportedDevice, ReportedImage
from aotforge.deliver.hardware.device import SHAPE, lost
from aotforge.deliver.hardware.times import call_times
from aotforge.deliver.install.choose import this_machine
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.pack.reader import open_files
from aotforge.pipeline.image_texts import check_texts
from aotforge.plan.checkout import Checkout
from aotforge.plan.selection import Only
from aotforge.release.release import Release
from aotforge.release.release_tasks import operator_kernels, release_tasks
from aotforge.verify.device.messages import CheckImage, DeviceResult, ShownDevice
from aotforge.verify.device.watchdog import Limits, check_on_device
from aotforge.verify.verdict import ImageTask

OnResult = Callable[[DeviceResult, int, int], None]
"""An image is done: its result, how many are, of how many."""
OnStage = Callable[[str], None]
_MODULE = Path("/sys/module/amdgpu/version")


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """`library`: another HIP library than the installed one. `not_compared`: why results are not compared
    with the virtual GPU's; empty: they are. `torch`: the Python whose PyTorch is timed, None for the active
    environment's. `repeat` 0: no times."""

    root: Path
    cache: Path
    date: str
    library: str | None = None
    only: Only = field(default_factory=Only)
    not_compared: str = ""
    shape: Mapping[str, int] = field(default_factory=lambda: dict(SHAPE))
    repeat: int = 20
    torch: Path | None = None
    limits: Limits = field(default_factory=Limits)


def check_release(
    request: CheckRequest, folder: Path, device: ShownDevice, *, on_stage: OnStage, on_result: OnResult
) -> HardwareReport:
    """Executes all selected images of the release in `folder` for the device's arch.

    Raises ReleaseError for a damaged release or one without images for the arch, UnknownNameError,
    RulesError, ToolchainError.
    """
    began = time.monotonic()
    pack_name = load_architectures(request.root / "manifests").architectures[device.arch].pack
    opened = Release.open(folder)
    profile, tasks = _tasks(request, opened, pack_name, device.arch)
    try:
        if not request.not_compared:  # the virtual GPU executes texts; without it nothing reads them
            check_texts(tasks)
    except ToolchainError as error:
        request = replace(request, not_compared=error.what)
        on_stage(f"note: results are not compared with the virtual GPU's: {error.what}")
    on_stage(f"{len(tasks)} images of {opened.name} on {device.name} ({device.arch}), {device.version}")
    if device.emulator:
        on_stage(f"{device.emulator} plays this device: it is not hardware")
    results, ended = [], ""
    for number, task in enumerate(tasks, 1):
        result, ended = _checked(request, task, device, ended)
        results.append(result)
        on_result(result, number, len(tasks))
    on_stage("timing PyTorch")
    times, torch = call_times(results, device, request.torch) if request.repeat else ([], "not requested")
    return HardwareReport(
        date=request.date,
        release=opened.name,
        profile=profile,
        pack=pack_name,
        sums=opened.digest,
        device=ReportedDevice.model_validate(
            {name: value for name, value in asdict(device).items() if name != "number"}
        ),
        rocm=this_machine(os.environ).rocm if device.vendor == "amd" else "",
        module=_module() if device.vendor == "amd" else "",
        kernel=platform.release(),
        torch=torch,
        images=tuple(map(_reported, results)),
        times=tuple(times),
        ended=ended,
        seconds=round(time.monotonic() - began, 1),
    )


def _tasks(request: CheckRequest, release: Release, pack: str, arch: str) -> tuple[str, Sequence[ImageTask]]:
    """The pack's profile, and the selected images."""
    for released in release.packs((pack,)):
        opened = open_files(released.pack)
        selected = request.only.kernels(operator_kernels(opened))
        tasks = release_tasks(released, opened, (arch,), Checkout(request.root), selected)
        if tasks:
            return opened.signature.profile, tasks
    raise ReleaseError(
        f"{release.folder} has no images for {arch} in {pack}",
        hint=f"./dev build --arch {arch}, or name another release with --release",
    )


def _checked(
    request: CheckRequest, task: ImageTask, device: ShownDevice, ended: str
) -> tuple[DeviceResult, str]:
    """The result of an image, and why none can follow ('': they can)."""
    if ended:
        return DeviceResult.ended(task, "not executed", ended), ended
    result, free = check_on_device(
        CheckImage(
            task=task,
            device=device,
            library=request.library,
            kernels_root=request.root / "kernels",
            cache=request.cache,
            not_compared=request.not_compared,
            shape=request.shape,
            repeat=request.repeat,
        ),
        request.limits,
    )
    if not free:
        return result, f"the process of {task.label} does not end: restart the machine"
    if result.outcome in {"fault", "hang"} and (reason := lost(request.library, device)):
        return result, f"after {task.label}: {reason}"
    return result, ""


def _reported(result: DeviceResult) -> ReportedImage:
    bits = result.bits
    same = ("digest", "label", "outcome", "cases", "launches", "worst", "not_timed")
    return ReportedImage.model_validate(
        {
            **{name: getattr(result, name) for name in same},
            "failure": result.failure[:8000],
            "not_compared": result.not_compared[:8000],
            "exact": bits is not None and not result.approximated,
            **({"elements": bits.elements, "same": bits.same, "differs": bits.first} if bits else {}),
        }
    )


def _module() -> str:
    """The version of the kernel module amdgpu; distributions' own kernels have none."""
    try:
        return _MODULE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
