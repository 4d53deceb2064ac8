"""Times of settings on a GPU: every image in a process of its own, checked, then timed in rounds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.compile.model import KernelImage
from aotforge.deliver.hardware.device import lost
from aotforge.devtools.cost.candidates import Candidate, CostRequest, compile_together
from aotforge.devtools.tune.search import (
    Estimates,
    EstimateStore,
    all_images,
    built,
    reason,
)
from aotforge.devtools.tune.tune_report import TimedOn, TunedCost
from aotforge.errors import CompileError, ExecutionError, ResourceError, VerifyError
from aotforge.pack.writer import write_pack
from aotforge.plan.model import CompileJob, JobKey
from aotforge.targets.installed import driver_versions
from aotforge.verify.device.messages import CheckImage, DeviceResult, ShownDevice, TimeImages
from aotforge.verify.device.watchdog import DeviceSession, Limits
from aotforge.verify.verifier_digest import family_verifier_digest
from aotforge.verify.verify_plan import image_tasks


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A turn is the median of `launches`. A round in which the reference's two times differ by more than the
    share `drift` is repeated, as often as there are `rounds`; fewer than `least` good ones are no result.
    Launches of less than `milliseconds` are timed together."""

    rounds: int = 7
    launches: int = 10
    drift: float = 0.05
    least: int = 3
    milliseconds: float = 0.2


class Turn(Protocol):
    """An image, ready to be timed."""

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        """Times of a call, or how its process ended."""


Rounds = Sequence[Mapping[str, tuple[float, ...]]]
"""Of each good round the medians of images by shape; that of the reference, '', is the mean of its two."""


def milliseconds(rounds: Rounds, key: str, shape: int) -> float:
    """The median over all rounds of an image's medians."""
    return statistics.median(times[key][shape] for times in rounds)


def ratio(rounds: Rounds, key: str, shape: int) -> float:
    """The same as a share of the reference's times, of each round by its own."""
    return statistics.median(times[key][shape] / times[""][shape] for times in rounds)


class EndedError(Exception):
    """The process of the image `key` ended with `result`; '' for the reference."""

    def __init__(self, key: str, result: DeviceResult) -> None:
        super().__init__(result.failure)
        self.key, self.result = key, result


def interleaved(reference: Turn, others: Mapping[str, Turn], shapes: int, timing: Timing) -> Rounds:
    """Times of all, in rounds.

    Raises EndedError for the first process that ends, and ExecutionError when the reference's times drift in
    too many rounds.
    """
    good: list[Mapping[str, tuple[float, ...]]] = []
    drifts: list[float] = []
    while len(good) < timing.rounds and len(drifts) < timing.rounds:
        before = _turn("", reference, shapes, timing)
        times = {key: _turn(key, other, shapes, timing) for key, other in others.items()}
        both = list(zip(before, _turn("", reference, shapes, timing), strict=True))
        drift = max(max(pair) / min(pair) - 1 if min(pair) > 0 else float("inf") for pair in both)
        if drift > timing.drift:
            drifts.append(drift)
        else:
            good.append({**times, "": tuple(sum(pair) / 2 for pair in both)})
    if len(good) < timing.least:
        raise ExecutionError(
            f"the GPU's clock drifts: in {len(drifts)} of {len(drifts) + len(good)} rounds by up to "
            f"{max(drifts):.0%}",
            cause="other work on the GPU, or a clock that follows load and temperature",
            hint="fix the clock (rocm-smi --setperfdeterminism, nvidia-smi -lgc), or allow more with --drift",
        )
    return good


def _turn(key: str, of: Turn, shapes: int, timing: Timing) -> tuple[float, ...]:
    """Medians by shape."""
    medians = []
    for shape in range(shapes):
        times = of.milliseconds(shape, timing.launches)
        if isinstance(times, DeviceResult):
            raise EndedError(key, times)
        medians.append(statistics.median(times))
    return tuple(medians)


_RELEASE = "tune"


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A candidate with its images, what is known of it, and the jobs whose images the timed calls take."""

    candidate: Candidate
    images: Mapping[JobKey, KernelImage]
    cost: TunedCost
    jobs: tuple[CompileJob, ...]

    @property
    def key(self) -> JobKey:
        return self.candidate.job.key


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """How settings are timed: on GPU `number` of the arch (None: the first), by another library of the driver
    than the installed one."""

    number: int | None = None
    driver: str | None = None
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)


@dataclass(kw_only=True)
class DeviceTimes(Estimates):
    """Times on `device` in the place of estimates; a context, which ends its processes. `library` launches,
    `scratch` takes image packs."""

    device: ShownDevice
    how: OnDevice
    library: Path
    scratch: Path
    note: Callable[[str], None] = lambda text: None
    _rules: _Built | None = None
    _reference: DeviceSession | None = None

    @property
    def on(self) -> TimedOn:
        """The device, and the versions of its driver's parts."""
        shown = self.device
        versions = (shown.version, *driver_versions(shown.vendor))
        return TimedOn(name=shown.name, versions=versions, emulator=shown.emulator)

    def __enter__(self) -> DeviceTimes:
        return self

    def __exit__(self, *error: object) -> None:
        self._end_reference()

    def made_by(self, calls: Sequence[CostRequest], chosen: Sequence[Candidate]) -> str:
        """What stored times hold for: the device and its driver, how it is measured, the cases, and the
        reference of each call."""
        device, timing = self.device, self.how.timing
        facts = [
            device.vendor, device.name, device.arch, device.emulator, self.on.versions,
            timing.rounds, timing.launches, timing.drift, group_digest("device timing"),
            family_verifier_digest(calls[0].kernels / chosen[0].folder, natively=False),
            [each.job.key for each in chosen],
        ]  # fmt: skip
        return json.dumps(facts)

    def reference(
        self, calls: Sequence[CostRequest], chosen: Sequence[Candidate], store: EstimateStore
    ) -> None:
        """Takes the rules' choice, by call, as the reference, and stores its times.

        Raises CompileError, ResourceError, VerifyError when it is not right on the device, and
        ExecutionError.
        """
        self._end_reference()
        own = chosen[0]
        compile_together([replace(own, job=job) for job in own.plan.jobs], calls[0])
        images = all_images(own, calls[0])
        jobs = tuple({candidate.job.key: candidate.job for candidate in chosen}.values())
        self._rules = _Built(candidate=own, images=images, cost=built(own, images), jobs=jobs)
        pairs = list(zip(calls, chosen, strict=True))
        if any(store.load(candidate.job.key, call) is None for call, candidate in pairs):
            rounds = self._rounds(calls, {})
            for shape, (call, candidate) in enumerate(pairs):
                cost = replace(
                    built(candidate, images), milliseconds=milliseconds(rounds, "", shape), ratio=1.0
                )
                store.put(candidate.job.key, [call], cost)

    def fill(self, calls: Sequence[CostRequest], missing: Sequence[Candidate], store: EstimateStore) -> None:
        """Times of these candidates on these calls, or why they have none. Raises ExecutionError for a device
        that is lost or drifts."""
        compile_together(missing, calls[0])
        ready: list[_Built] = []
        for candidate in {candidate.job.key: candidate for candidate in missing}.values():
            try:
                images = all_images(candidate, calls[0])
                cost = built(candidate, images)
            except (CompileError, ResourceError) as error:
                cost = TunedCost(refused=reason(error))
            if cost.usable:
                ready.append(_Built(candidate=candidate, images=images, cost=cost, jobs=(candidate.job,)))
            else:
                store.put(candidate.job.key, calls, cost)
        while ready:
            ready = self._pass(calls, ready, store)

    def _pass(
        self, calls: Sequence[CostRequest], ready: Sequence[_Built], store: EstimateStore
    ) -> list[_Built]:
        """Stores times, and why some have none; those that a fault of another may have hit start anew."""
        left = {variant.key: variant for variant in ready}
        with ExitStack() as stack:
            sessions: dict[JobKey, DeviceSession] = {}
            for variant in ready:
                sessions[variant.key] = session = self._session(calls, variant)
                stack.callback(session.close)
                result = session.check()
                if result.outcome != "passed":
                    del left[variant.key]
                    if self._refused(calls, variant, result, session, store):
                        return list(left.values())
            if not left:
                return []
            try:
                rounds = self._rounds(calls, {key: sessions[key] for key in left})
            except EndedError as error:
                self._refused(calls, left.pop(error.key), error.result, sessions[error.key], store)
                self._end_reference()
                return list(left.values())
            for key, variant in left.items():
                for shape, call in enumerate(calls):
                    time, share = milliseconds(rounds, key, shape), ratio(rounds, key, shape)
                    store.put(key, [call], replace(variant.cost, milliseconds=time, ratio=share))
        return []

    def _rounds(self, calls: Sequence[CostRequest], sessions: Mapping[JobKey, DeviceSession]) -> Rounds:
        if self._reference is None:
            assert self._rules is not None
            self._reference = self._session(calls, self._rules)
            result = self._reference.check()
            if result.outcome != "passed":
                raise _wrong_reference(result)
        try:
            return interleaved(self._reference, sessions, len(calls), self.how.timing)
        except EndedError as error:
            if error.key:
                raise
            raise _wrong_reference(error.result) from error

    def _refused(
        self,
        calls: Sequence[CostRequest],
        variant: _Built,
        result: DeviceResult,
        session: DeviceSession,
        store: EstimateStore,
    ) -> bool:
        """Stores why a candidate has no times; True if it may have disturbed others. ExecutionError."""
        text = f"{result.outcome} on the GPU: {result.failure}"
        self.note(f"{variant.candidate.name}: {text}")
        store.put(variant.key, calls, replace(variant.cost, refused=text[:1000]))
        if result.outcome not in {"fault", "hang"}:
            return False
        self._end_reference()
        reason = lost(self.how.driver, self.device) if session.free else "its process does not end"
        if reason:
            raise ExecutionError(
                f"after {variant.candidate.name}: {reason}",
                cause="the image's fault took the GPU from the driver",
                hint="restart the machine; the same command then continues behind this setting",
            )
        return True

    def _session(self, calls: Sequence[CostRequest], variant: _Built) -> DeviceSession:
        request, wanted = calls[0], {job.key for job in variant.jobs}
        tasks = image_tasks(variant.candidate.plan, variant.images, request.kernels)
        checks = tuple(
            CheckImage(
                task=task, device=self.device, library=self.how.driver, kernels_root=request.kernels,
                cache=request.cache, not_compared="not requested", shape={}, repeat=0,
            )
            for task in tasks
            if task.key in wanted
        )  # fmt: skip
        time = TimeImages(
            checks=checks,
            operator=variant.candidate.plan.operators[0],
            library=self.library,
            images=self._packed(variant),
            shapes=tuple({name: int(size) for name, size in call.shape.items()} for call in calls),
            least=self.how.timing.milliseconds,
        )
        return DeviceSession(time, self.how.limits)

    def _packed(self, variant: _Built) -> Path:
        """The folder of an image pack with the candidate's images alone."""
        folder = self.scratch / ("rules" if variant is self._rules else variant.key)
        pack = write_pack(variant.candidate.plan, variant.images.values(), release=_RELEASE)
        make_folders(folder / pack.name)
        for name, data in pack.files.items():
            write_atomic(folder / pack.name / name, data)
        return folder

    def _end_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
        self._reference = None


def _wrong_reference(result: DeviceResult) -> VerifyError:
    return VerifyError(
        f"{result.label}, which serves the call now, is not right on this GPU: "
        f"{result.outcome}: {result.failure}",
        cause="a fault of the image, of the driver or of the GPU; settings are compared with it",
        hint="./dev hardware.check makes a report of all images; correct the row in manifests/tuning",
    )
