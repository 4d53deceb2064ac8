"""Messages between a check and the processes of its images: requests, progress, devices, results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.hardware import Outcome
from aotforge.plan.model import JobKey
from aotforge.rules import Operator
from aotforge.verify.device.images import Bits
from aotforge.verify.verdict import ImageTask


@dataclass(frozen=True, kw_only=True)
class ShownDevice:
    """A device as its driver shows it. `emulator`: what plays it, '' for hardware as far as a process can
    see."""

    vendor: str
    number: int
    name: str
    arch: str
    version: str
    emulator: str = ""


@dataclass(frozen=True, kw_only=True)
class Time:
    """Median time of one launch on a call of the shape `call` by a functional: its name, such as
    `dtype=fp16,width=64`, and `keys`."""

    operator: str
    kernel: str
    functional: str
    keys: tuple[tuple[str, int], ...]
    call: str
    milliseconds: float


@dataclass(frozen=True, kw_only=True)
class DeviceResult:
    """One image on a device.

    `worst`: the largest error as a share of what is allowed; None without a comparison or for an infinite
    one. `approximated`: instructions whose last bits may differ from the virtual GPU's. `bits`: None where
    the virtual GPU executed nothing, `not_compared` has the reason then. `times` are those of images that
    passed; `not_timed` has the reason where there are none.
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
        """True where every instruction has one right result and the device computed another one than the
        virtual GPU."""
        return bool(self.bits and not self.approximated and self.bits.same < self.bits.elements)


@dataclass(frozen=True, kw_only=True)
class ListDevices:
    """`library`: that of AMD's driver, None for the installed one."""

    library: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckImage:
    """`compare`: with the virtual GPU. `shape` is the timed call's as far as the family has its names;
    `repeat` 0: no times."""

    task: ImageTask
    device: ShownDevice
    library: str | None
    kernels_root: Path
    cache: Path
    compare: bool
    shape: Mapping[str, int]
    repeat: int


@dataclass(frozen=True, kw_only=True)
class TimeImages:
    """The images are checked as the library at `library` launches them from the packs in `images`; then the
    process times calls of
    `shapes` as it receives requests, until the connection closes. The answer is the first result that is not
    `passed`, or the last one.
    `least`: milliseconds between two events.
    """

    checks: tuple[CheckImage, ...]
    operator: Operator
    library: Path
    images: Path
    shapes: tuple[Mapping[str, int], ...]
    least: float


@dataclass(frozen=True, kw_only=True)
class TimeCall:
    """Time the call of that shape's number, by as many pairs of events."""

    shape: int
    launches: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The case that the device executes from now on; '' when it has finished."""

    case: str


Devices = tuple[tuple[ShownDevice, ...], tuple[str, ...]]
"""The devices, and why a vendor has none."""
