"""A tune of one functional, or of a profile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
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
from aotforge.devtools.tune.device_times import DeviceTimes, OnDevice
from aotforge.devtools.tune.search import Estimates, OnTried, search
from aotforge.devtools.tune.tune_report import Search, write_found
from aotforge.errors import CompileError, ResourceError, RulesError, UnsupportedError, VerifyError
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from aotforge.toolchain.triton import pinned_triton
from aotforge.verify.device.messages import ShownDevice
from aotforge.verify.invocation import load_shaped


@dataclass(frozen=True, kw_only=True)
class TuneRequest(CostRequest):
    """Without a kernel in `images`: every functional of the profile. `device` None: estimates. `write`:
    results are kept in manifests/tuning."""

    shapes: Sequence[Mapping[str, str]] = ()
    seconds: float
    device: OnDevice | None = None
    write: bool = False
    shared: SharedObjects = NOT_SHARED
    elsewhere: Estimates = field(default_factory=Estimates)


@dataclass(frozen=True, kw_only=True)
class TuneReports:
    """A report per functional; `skipped` ones with the reason, and how many the time did not suffice for."""

    reports: tuple[Search, ...]
    skipped: tuple[str, ...] = ()
    left: int = 0
    single: bool = False

    def fields(self) -> dict[str, Any]:
        """JSON values: those of the one functional of the request, or a list."""
        if self.single:
            return self.reports[0].fields()
        every = [report.fields() for report in self.reports]
        return {"functionals": every, "skipped": list(self.skipped), "left": self.left}

    def lines(self) -> list[str]:
        """All reports, one after another."""
        lines = [line for report in self.reports for line in (*report.lines(), "")]
        left = f"{self.left} functionals are left: the same command with a larger --budget continues"
        return [*lines[:-1], *self.skipped, *([left] if self.left else [])]


def tune(
    request: TuneRequest, *, observer: Observer = SILENT, on_tried: OnTried = lambda tried, done, total: None
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
    if request.images:
        return TuneReports(reports=(_one(request, shown, observer, on_tried),), single=True)
    wanted = list(_functionals(request))
    reports: list[Search] = []
    skipped: list[str] = []
    for number, (kernel, keys) in enumerate(wanted):
        left = began + request.seconds - time.monotonic()
        if left <= 0 and number:
            return TuneReports(reports=tuple(reports), skipped=tuple(skipped), left=len(wanted) - number)
        text = f"{kernel} {','.join(f'{name}={value}' for name, value in keys.items())}"
        observer.stage(f"{number + 1}/{len(wanted)} {text}")
        share = max(left, 0.0) / (len(wanted) - number)
        try:
            functional_request = replace(request, images=(kernel,), keys=keys, seconds=share)
            reports.append(_one(functional_request, shown, observer, on_tried))
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


def _one(request: TuneRequest, shown: ShownDevice | None, observer: Observer, on_tried: OnTried) -> Search:
    """The search of one functional."""
    shapes: Sequence[Mapping[str, str]] = request.shapes or ([_timed_shape(request)] if shown else [])
    with ExitStack() as stack:
        place = request.elsewhere
        if shown and request.device:
            library = build_runtime(LibraryRequest(root=request.root, cache=request.cache)).library
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="aotforge-tune-")))
            times = DeviceTimes(
                device=shown, how=request.device, library=library, scratch=scratch, note=observer.note
            )
            place = stack.enter_context(times)
        result = search(
            request, shapes, place, seconds=request.seconds, on_tried=on_tried, shared=request.shared
        )
    if not request.write:
        return result
    date = datetime.now(UTC).date().isoformat()
    triton = pinned_triton(request.root / "requirements" / "build.in")
    path = write_found(result, request.root / "manifests" / "tuning", date=date, triton=triton)
    return replace(result, written=path)


def _timed_shape(cost: CostRequest) -> dict[str, str]:
    """The call that `./dev hardware.check` times, as far as the family has its names."""
    loaded, _ = find_kernel(cost.root, cost.images[0])
    shaped = load_shaped(cost.kernels, loaded.folder)
    if shaped is None:
        raise UnsupportedError(
            f"the family in kernels/{loaded.folder} offers no calls by shape, which are timed"
        )
    return {name: str(size) for name, size in SHAPE.items() if name in shaped[0]}
