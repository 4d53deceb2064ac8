"""A tune of one functional, or of a profile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.base.progress import SILENT, Observer
from aotforge.deliver.hardware.device import SHAPE, choose_device
from aotforge.devtools.cost.candidates import CostRequest
from aotforge.devtools.selection import find_kernel
from aotforge.devtools.tune.device_times import DeviceTimes
from aotforge.devtools.tune.rounds import Timing
from aotforge.devtools.tune.search import Estimates, OnTried, TimedOn, search
from aotforge.devtools.tune.tune_report import TuneReport, write_found
from aotforge.errors import CompileError, ResourceError, RulesError, UnsupportedError, VerifyError
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from aotforge.targets.installed import driver_versions
from aotforge.toolchain.triton import pinned_triton
from aotforge.verify.device.messages import ShownDevice
from aotforge.verify.device.watchdog import Limits
from aotforge.verify.invocation import load_shaped


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """How settings are timed: on GPU `number` of the arch (None: the first), by another library of the driver
    than the installed one."""

    number: int | None = None
    driver: str | None = None
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """`kernel` None: every functional of the profile. `device` None: estimates. `write`: results are kept in
    manifests/tuning.
    """

    root: Path
    cache: Path
    kernel: str | None
    arch: str
    keys: Mapping[str, str]
    shapes: Sequence[Mapping[str, str]]
    seconds: float
    profile: str | None = None
    device: OnDevice | None = None
    write: bool = False
    shared: SharedObjects = NOT_SHARED
    elsewhere: Estimates | None = None

    def of(self, kernel: str, keys: Mapping[str, str]) -> CostRequest:
        """The search of one functional."""
        return CostRequest(
            root=self.root, cache=self.cache, images=(kernel,), arch=self.arch, keys=keys, shape={}
        )


@dataclass(frozen=True, kw_only=True)
class TuneReports:
    """A report per functional; `skipped` ones with the reason, and how many the time did not suffice for."""

    reports: tuple[TuneReport, ...]
    skipped: tuple[str, ...] = ()
    left: int = 0
    single: bool = False

    def fields(self) -> dict[str, Any]:
        """JSON values: those of the one functional of the request, or a list."""
        if self.single:
            return self.reports[0].fields()
        every = [one.fields() for one in self.reports]
        return {"functionals": every, "skipped": list(self.skipped), "left": self.left}

    def lines(self) -> list[str]:
        """All reports, one after another."""
        lines = [line for one in self.reports for line in (*one.lines(), "")]
        left = f"{self.left} functionals are left: the same command with a larger --budget continues"
        return [*lines[:-1], *self.skipped, *([left] if self.left else [])]


def tune(
    request: TuneRequest, *, observer: Observer = SILENT, on_tried: OnTried = lambda one, done, total: None
) -> TuneReports:
    """Searches as the request states. Results are written one by one.

    Raises DeviceError without a GPU of the arch, ExecutionError for one that is lost or whose clock drifts,
    and what `search` and `write_found` raise; of one functional of many UnsupportedError, RulesError,
    VerifyError, CompileError and ResourceError are reported.
    """
    began = time.monotonic()
    device = request.device
    shown = (
        choose_device(request.root, arch=request.arch, number=device.number, library=device.driver)
        if device
        else None
    )
    if request.kernel:
        report = _one(
            request, request.of(request.kernel, request.keys), request.seconds, shown, observer, on_tried
        )
        return TuneReports(reports=(report,), single=True)
    wanted = list(_functionals(request))
    reports: list[TuneReport] = []
    skipped: list[str] = []
    for number, (kernel, keys) in enumerate(wanted):
        left = began + request.seconds - time.monotonic()
        if left <= 0 and number:
            return TuneReports(reports=tuple(reports), skipped=tuple(skipped), left=len(wanted) - number)
        text = f"{kernel} {','.join(f'{name}={value}' for name, value in keys.items())}"
        observer.stage(f"{number + 1}/{len(wanted)} {text}")
        share = max(left, 0.0) / (len(wanted) - number)
        try:
            reports.append(_one(request, request.of(kernel, keys), share, shown, observer, on_tried))
        except (UnsupportedError, RulesError, VerifyError, CompileError, ResourceError) as error:
            skipped.append(f"{text}: {error.what.splitlines()[0]}")
            observer.note(skipped[-1])
    return TuneReports(reports=tuple(reports), skipped=tuple(skipped))


def _functionals(request: TuneRequest) -> Iterator[tuple[str, dict[str, str]]]:
    """Kernels with the options of their choices. Raises what planning raises."""
    plan = plan_project(Checkout(request.root), archs=[request.arch], profile=request.profile)
    for planned in plan.kernels:
        name = f"{planned.family}.{planned.name}"
        _, kernel = find_kernel(request.root, name)
        for functional in planned.functionals:
            numbers = dict(zip(planned.keys, functional.key, strict=True))
            keys = {
                choice.name: str(option)
                for choice in kernel.choices
                for option, number in choice.options.items()
                if number == numbers[choice.key]
            }
            yield name, keys


def _one(
    request: TuneRequest,
    cost: CostRequest,
    seconds: float,
    shown: ShownDevice | None,
    observer: Observer,
    on_tried: OnTried,
) -> TuneReport:
    """The search of one functional."""
    shapes: Sequence[Mapping[str, str]] = request.shapes or ([_timed_shape(cost)] if shown else [])
    common: dict[str, Any] = {"seconds": seconds, "on_tried": on_tried, "shared": request.shared}
    if shown is None:
        found = search(cost, shapes, elsewhere=request.elsewhere, **common)
    else:
        with _times(request, shown, observer) as times:
            found = search(cost, shapes, times=times, **common)
    report = TuneReport(search=found)
    if not request.write:
        return report
    date, triton = (
        datetime.now(UTC).date().isoformat(),
        pinned_triton(request.root / "requirements" / "build.in"),
    )
    path = write_found(report, request.root / "manifests" / "tuning", date=date, triton=triton)
    return replace(report, written=path)


def _timed_shape(cost: CostRequest) -> dict[str, str]:
    """The call that `./dev hardware.check` times, as far as the family has its names."""
    loaded, _ = find_kernel(cost.root, cost.images[0])
    shaped = load_shaped(cost.kernels, loaded.folder)
    if shaped is None:
        raise UnsupportedError(
            f"the family in kernels/{loaded.folder} offers no calls by shape, which are timed"
        )
    return {name: str(size) for name, size in SHAPE.items() if name in shaped[0]}


@contextmanager
def _times(request: TuneRequest, shown: ShownDevice, observer: Observer) -> Iterator[DeviceTimes]:
    """Times on the device, with the library of this checkout."""
    assert request.device is not None
    device = request.device
    library = build_runtime(LibraryRequest(root=request.root, cache=request.cache)).library
    on = TimedOn(
        name=shown.name,
        versions=(shown.version, *driver_versions(shown.vendor)),
        emulator=shown.emulator,
    )
    with (
        TemporaryDirectory(prefix="aotforge-tune-") as scratch,
        DeviceTimes(
            device=shown,
            driver=device.driver,
            library=library,
            scratch=Path(scratch),
            on=on,
            timing=device.timing,
            limits=device.limits,
            note=observer.note,
        ) as times,
    ):
        yield times
