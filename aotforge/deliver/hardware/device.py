"""The device that a check or a tune is for, and whether a fault took it away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.errors import DeviceError, ExecutionError
from aotforge.verify.device.messages import ShownDevice
from aotforge.verify.device.watchdog import shown_devices

SHAPE: Mapping[str, int] = {"batch": 2, "heads_q": 16, "heads_k": 16, "seqlen_q": 1024, "seqlen_k": 1024}
"""The timed call of attention."""


def choose_device(
    root: Path, *, arch: str | None = None, number: int | None = None, library: str | None = None
) -> ShownDevice:
    """The first device with these properties whose arch is known; `library` as of `shown_devices`.

    Raises DeviceError when there is none, ExecutionError when the driver does not answer.
    """
    devices, reasons = shown_devices(library)
    if not devices:
        raise DeviceError(
            "no GPU was found on this machine",
            cause="; ".join(reasons),
            hint="rocminfo and nvidia-smi list GPUs; --hip names the path of libamdhip64.so",
        )
    known = load_architectures(root / "manifests").architectures
    fitting = [
        device
        for device in devices
        if (arch or device.arch) == device.arch and device.arch in known and number in {None, device.number}
    ]
    if not fitting:
        shown = ", ".join(f"{device.number}: {device.name} ({device.arch})" for device in devices)
        raise DeviceError(
            "no GPU of this machine fits" + (f": none is {arch}" if arch and number is None else ""),
            cause=f"it has {shown}",
            hint=f"--arch and --gpu select one; archs with images: {', '.join(known)}",
        )
    return fitting[0]


def lost(library: str | None, device: ShownDevice) -> str:
    """Why the device cannot be used any more after a fault, '' when it can."""
    try:
        devices, reasons = shown_devices(library)
    except ExecutionError as error:
        return error.what
    return (
        ""
        if device in devices
        else f"the GPU is not available any more ({'; '.join(reasons) or 'others are'})"
    )
