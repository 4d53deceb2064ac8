"""Messages between a check and the processes of its images.

A request is `CheckImage`, `TimeImages` followed by `TimeCall`, or the library of AMD's driver (None: the
installed one) to list devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.hardware import Outcome
from aotforge.plan.model import JobKey
from aotforge.rules import Operator
from aotforge.verify.verdict import ImageTask


@dataclass(frozen=True, kw_only=True)
class ShownDevice:
    """A device as its driver shows it. `emulator`: what plays it, '' for hardware."""

    vendor: str
    number: int
    name: str
    arch: str
    version: str
    emulator: str = ""


@dataclass(frozen=True, kw_only=True)
class Time:
    """Median time of a launch on a call of the shape `call` by a functional, as `dtype=fp16,width=64`."""

    operator: str
    kernel: str
    functional: str
    keys: tuple[tuple[str, int], ...]
    call: str
    milliseconds: float


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Elements that device and virtual GPU computed, those of the `same` bits, and the `first` other."""

    elements: int = 0
    same: int = 0
    first: str = ""

    def __add__(self, other: Bits) -> Bits:
        return Bits(
            elements=self.elements + other.elements,
            same=self.same + other.same,
            first=self.first or other.first,
        )


@dataclass(frozen=True, kw_only=True)
class DeviceResult:
    """One image on a device.

    `worst`: the largest error as a share of what is allowed, if finite. `approximated`: instructions whose
    last bits may differ from the virtual GPU's. `not_compared`, `not_timed`: why there are no bits, no times.
    """

    key: JobKey
    digest: str
    label: str
    outcome: Outcome
    failure: str = ""
    cases: int = 0
    launches: int = 0
    worst: float | None = None
    approximated: tuple[str, ...] = ()
    bits: Bits | None = None
    not_compared: str = ""
    times: tuple[Time, ...] = ()
    not_timed: str = ""

    @classmethod
    def ended(cls, task: ImageTask, outcome: Outcome, failure: str) -> DeviceResult:
        """Of an image whose process gave no result."""
        return cls(key=task.key, digest=task.digest, label=task.label, outcome=outcome, failure=failure)

    @property
    def differs(self) -> bool:
        """Every instruction has one right result, and the device computed another one."""
        return bool(self.bits and not self.approximated and self.bits.same < self.bits.elements)


@dataclass(frozen=True, kw_only=True)
class CheckImage:
    """`not_compared`: why not with the virtual GPU; empty: it is. `shape` is the timed call's; `repeat` 0: no
    times."""

    task: ImageTask
    device: ShownDevice
    library: str | None
    kernels_root: Path
    cache: Path
    not_compared: str
    shape: Mapping[str, int]
    repeat: int


@dataclass(frozen=True, kw_only=True)
class TimeImages:
    """Check images as the library launches them from the packs in `images`, then time calls on request.

    The answer is the first result that is not `passed`, or the last one. `least`: ms between two events.
    """

    checks: tuple[CheckImage, ...]
    operator: Operator
    library: Path
    images: Path
    shapes: tuple[Mapping[str, int], ...]
    least: float

    @property
    def task(self) -> ImageTask:
        """The first image, which is named when the process ends."""
        return self.checks[0].task


TimeCall = tuple[int, int]
"""The number of a shape to time, and launches, each between a pair of events."""

Progress = str
"""The case that the device executes from now on; '' when it has finished."""

Devices = tuple[tuple[ShownDevice, ...], tuple[str, ...]]
"""The devices, and why a vendor has none."""
