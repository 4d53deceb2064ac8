"""Models of the report of `./dev hardware.check`, and of `manifests/hardware/`, which keeps imports."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from aotforge.base.architectures import ArchName
from aotforge.base.manifest_reader import Manifest, load

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


Day = Annotated[str, Field(pattern=r"^20"), AfterValidator(lambda text: str(date.fromisoformat(text)))]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Line = Annotated[str, Field(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, Field(max_length=16384)]
Outcome = Literal["passed", "failed", "fault", "hang", "unverified", "not executed"]
"""Of one image. `fault`: the driver stopped a launch, or the process ended; `hang`: no end of a launch;
`unverified`: it has no case; `not executed`: the check had ended before."""


class ReportedDevice(Manifest):
    """A GPU as its driver shows it. `version` is the driver library's; `emulator` what plays the GPU."""

    vendor: Literal["amd", "nvidia"]
    name: Line
    arch: ArchName
    version: Line
    emulator: Line = ""


class ReportedImage(Manifest):
    """One image. `elements` were computed by the device and by the virtual GPU, `same` of them alike.

    `differs` is one of the others. `exact`: all must be the same, as every instruction has one right result.
    """

    digest: Sha256
    label: Text
    outcome: Outcome
    failure: Text = ""
    cases: Count = 0
    launches: Count = 0
    worst: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    exact: bool = False
    elements: Count = 0
    same: Count = 0
    differs: Text = ""
    not_compared: Text = ""
    not_timed: Text = ""

    @property
    def unequal(self) -> bool:
        """Whether the device computed other bits than the only right ones."""
        return self.exact and self.same < self.elements

    @property
    def state(self) -> str:
        """The outcome, or `differs`."""
        return "differs" if self.outcome == "passed" and self.unequal else self.outcome


class ReportedTime(Manifest):
    """Milliseconds of an operator's kernels together, and of PyTorch's math path on the same call."""

    operator: Line
    functional: Line
    keys: dict[Line, int]
    call: Line
    milliseconds: Seconds
    torch: Seconds | None = None


class _Measured(Manifest):
    schema_version: Literal[1] = Field(alias="schema", default=1)
    date: Day
    device: ReportedDevice
    rocm: Line
    release: Line
    profile: Line
    times: tuple[ReportedTime, ...] = ()


class HardwareReport(_Measured):
    """What one check found. `sums`: SHA-256 of the release's SHA256SUMS; `seconds`: of the complete check.

    `rocm`, `module` and `kernel` are versions or '', `torch` PyTorch's version or why it was not timed.
    """

    pack: Line
    sums: Sha256
    module: Line
    kernel: Line
    torch: Text
    images: tuple[ReportedImage, ...]
    ended: Text = ""
    seconds: Seconds

    @property
    def counts(self) -> dict[str, int]:
        """Images by state, the most frequent first."""
        states = [image.state for image in self.images]
        return {state: states.count(state) for state in sorted(set(states), key=states.count, reverse=True)}

    @property
    def wrong(self) -> tuple[ReportedImage, ...]:
        """Images that are not right on this GPU, or not known to be."""
        return tuple(image for image in self.images if image.state != "passed")


class HardwareRun(_Measured):
    """One imported report. `passed` of `images` are right; `wrong`: labels of the others with their state.

    `same` of the `exact` images agree bit by bit with the virtual GPU. `report` is the SHA-256 of the
    report's bytes; `key` that of the public key (DER) which signed it, '' without a signature.
    """

    images: Annotated[int, Field(ge=1)]
    passed: Count
    exact: Count
    same: Count
    wrong: dict[Text, str] = Field(default_factory=dict)
    report: Sha256
    key: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]

    @property
    def line(self) -> str:
        """`gfx908 (AMD Instinct MI100), ROCm 7.0, 2026-11-22: 104 of 104 images of 0.11.2b-r1 passed`."""
        driver = f"ROCm {self.rocm}" if self.rocm else self.device.version
        return (
            f"{self.device.arch} ({self.device.name}), {driver}, {self.date}: "
            f"{self.passed} of {self.images} images of {self.release} passed"
        )


def load_hardware_runs(manifests: Path) -> tuple[HardwareRun, ...]:
    """Every file of `manifests`/hardware, by arch, the newest first. Raises ManifestError."""
    runs = [load(path, HardwareRun) for path in sorted((manifests / "hardware").glob("*.yaml"))]
    return tuple(sorted(runs, key=lambda run: (run.device.arch, -date.fromisoformat(run.date).toordinal())))
