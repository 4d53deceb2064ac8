"""Times of settings on a GPU: every image in a process of its own, checked, then timed in rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.compile.model import KernelImage
from aotforge.deliver.hardware.device import lost
from aotforge.devtools.cost.candidates import Candidate, CostRequest, compile_together
from aotforge.devtools.tune.rounds import EndedError, Rounds, Timing, interleaved
from aotforge.devtools.tune.search import EstimateStore, TimedOn, TunedCost, all_images, built, reason
from aotforge.errors import CompileError, ExecutionError, ResourceError, VerifyError
from aotforge.pack.writer import write_pack
from aotforge.plan.model import CompileJob, JobKey
from aotforge.verify.device.messages import CheckImage, DeviceResult, ShownDevice, TimeImages
from aotforge.verify.device.watchdog import DeviceSession, Limits
from aotforge.verify.verifier_digest import family_verifier_digest
from aotforge.verify.verify_plan import image_tasks

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


@dataclass(kw_only=True)
class DeviceTimes:
    """Fills a store with times on `device`; a context, which ends its processes. `library` launches,
    `scratch` takes image packs.

    `driver`: another library of it than the installed one; `on`: what the times are of.
    """

    device: ShownDevice
    driver: str | None
    library: Path
    scratch: Path
    on: TimedOn
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    note: Callable[[str], None] = lambda text: None
    together: int = 8
    _rules: _Built | None = None
    _reference: DeviceSession | None = None

    def __enter__(self) -> DeviceTimes:
        return self

    def __exit__(self, *error: object) -> None:
        self._end_reference()

    def identity(self, calls: Sequence[CostRequest], chosen: Sequence[Candidate]) -> str:
        """What stored times hold for: the device and its driver, how it is measured, the cases, and the
        reference of each call."""
        device, one = self.device, chosen[0]
        facts = [
            device.vendor, device.name, device.arch, device.emulator, self.on.versions,
            self.timing.rounds, self.timing.launches, self.timing.drift, group_digest("device timing"),
            family_verifier_digest(calls[0].kernels / one.folder, natively=False),
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
        images = all_images(chosen[0], calls[0])
        jobs = tuple({one.job.key: one.job for one in chosen}.values())
        self._rules = _Built(candidate=chosen[0], images=images, cost=built(chosen[0], images), jobs=jobs)
        if all(store.has(one.job.key, call) for one, call in zip(chosen, calls, strict=True)):
            return
        rounds = self._rounds(calls, {})
        for shape, (one, call) in enumerate(zip(chosen, calls, strict=True)):
            store.put(
                one.job.key,
                call,
                replace(built(one, images), milliseconds=rounds.reference(shape), ratio=1.0),
            )

    def fill(self, calls: Sequence[CostRequest], found: Sequence[Candidate], store: EstimateStore) -> None:
        """Times of these candidates on these calls, or why they have none. Raises ExecutionError for a device
        that is lost or drifts."""
        compile_together(found, calls[0])
        ready: list[_Built] = []
        for one in {one.job.key: one for one in found}.values():
            try:
                images = all_images(one, calls[0])
                cost = built(one, images)
            except (CompileError, ResourceError) as error:
                cost = TunedCost(refused=reason(error))
            if cost.usable:
                ready.append(_Built(candidate=one, images=images, cost=cost, jobs=(one.job,)))
            else:
                _put(store, calls, one.job.key, cost)
        while ready:
            ready = self._pass(calls, ready, store)

    def _pass(
        self, calls: Sequence[CostRequest], ready: Sequence[_Built], store: EstimateStore
    ) -> list[_Built]:
        """Stores the times of right candidates, and why the others have none. Returns those that start anew:
        a fault of another one may have taken the device from them."""
        left = {one.key: one for one in ready}
        with ExitStack() as stack:
            sessions: dict[JobKey, DeviceSession] = {}
            for one in ready:
                sessions[one.key] = session = self._session(calls, one)
                stack.callback(session.close)
                result = session.check()
                if result.outcome != "passed":
                    del left[one.key]
                    if self._refused(calls, one, result, session, store):
                        return list(left.values())
            if not left:
                return []
            try:
                rounds = self._rounds(calls, {key: sessions[key] for key in left})
            except EndedError as error:
                self._refused(calls, left.pop(error.key), error.result, sessions[error.key], store)
                self._end_reference()
                return list(left.values())
            for key, one in left.items():
                for shape, call in enumerate(calls):
                    time, ratio = rounds.milliseconds(key, shape), rounds.ratio(key, shape)
                    store.put(key, call, replace(one.cost, milliseconds=time, ratio=ratio))
        return []

    def _rounds(self, calls: Sequence[CostRequest], sessions: Mapping[JobKey, DeviceSession]) -> Rounds:
        if self._reference is None:
            assert self._rules is not None
            self._reference = self._session(calls, self._rules)
            result = self._reference.check()
            if result.outcome != "passed":
                raise _wrong_reference(result)
        try:
            return interleaved(self._reference, sessions, len(calls), self.timing)
        except EndedError as error:
            if error.key:
                raise
            raise _wrong_reference(error.result) from error

    def _refused(
        self,
        calls: Sequence[CostRequest],
        one: _Built,
        result: DeviceResult,
        session: DeviceSession,
        store: EstimateStore,
    ) -> bool:
        """Stores why a candidate has no times; True for one that may have disturbed others, the reference
        among them. Raises ExecutionError without the device."""
        text = f"{result.outcome} on the GPU: {result.failure}"
        self.note(f"{one.candidate.name}: {text}")
        _put(store, calls, one.key, replace(one.cost, refused=text[:1000]))
        if result.outcome not in {"fault", "hang"}:
            return False
        self._end_reference()
        reason = lost(self.driver, self.device) if session.free else "its process does not end"
        if reason:
            raise ExecutionError(
                f"after {one.candidate.name}: {reason}",
                cause="the image's fault took the GPU from the driver",
                hint="restart the machine; the same command then continues behind this setting",
            )
        return True

    def _session(self, calls: Sequence[CostRequest], one: _Built) -> DeviceSession:
        request, wanted = calls[0], {job.key for job in one.jobs}
        tasks = image_tasks(one.candidate.plan, one.images, request.kernels)
        checks = tuple(
            CheckImage(
                task=task, device=self.device, library=self.driver, kernels_root=request.kernels,
                cache=request.cache, compare=False, shape={}, repeat=0,
            )
            for task in tasks
            if task.key in wanted
        )  # fmt: skip
        time = TimeImages(
            checks=checks,
            operator=one.candidate.plan.operators[0],
            library=self.library,
            images=self._packed(one),
            shapes=tuple({name: int(size) for name, size in call.shape.items()} for call in calls),
            least=self.timing.milliseconds,
        )
        return DeviceSession(time, self.limits)

    def _packed(self, one: _Built) -> Path:
        """The folder of an image pack with the candidate's images alone."""
        folder = self.scratch / ("rules" if one is self._rules else one.key)
        pack = write_pack(one.candidate.plan, one.images.values(), release=_RELEASE)
        make_folders(folder / pack.name)
        for name, data in pack.files.items():
            write_atomic(folder / pack.name / name, data)
        return folder

    def _end_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
        self._reference = None


def _put(store: EstimateStore, calls: Sequence[CostRequest], key: JobKey, cost: TunedCost) -> None:
    for call in calls:
        store.put(key, call, cost)


def _wrong_reference(result: DeviceResult) -> VerifyError:
    return VerifyError(
        f"{result.label}, which serves the call now, is not right on this GPU: "
        f"{result.outcome}: {result.failure}",
        cause="a fault of the image, of the driver or of the GPU; settings are compared with it",
        hint="./dev hardware.check makes a report of all images; correct the row in manifests/tuning",
    )
