"""Search of a kernel's settings for one functional: compiled, estimated, within a budget of time.

What is known is read again: images from the compile cache, estimates from `<cache>/tune-2`. A search that
ends for lack of time therefore resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from aotforge.base.architectures import load_architectures
from aotforge.base.files import write_atomic
from aotforge.base.object_cache import NOT_SHARED, DamagedObjectError, ObjectCache, SharedObjects
from aotforge.base.source_groups import group_digest
from aotforge.compile.model import KernelImage
from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    compile_together,
    compiled,
    find_candidates,
)
from aotforge.devtools.cost.rates import model_of
from aotforge.devtools.cost.run_cost import dispatched, measured
from aotforge.devtools.selection import choose, find_kernel
from aotforge.devtools.tune.space import Values, candidates, present, space
from aotforge.errors import AotforgeError, CompileError, ExecutionError, ResourceError, UnsupportedError
from aotforge.plan.model import JobKey
from aotforge.rules import Setting

_TOGETHER = 8  # compiled at once: one per CPU of a workstation, and few where the time ends


@dataclass(frozen=True, kw_only=True)
class TunedCost:
    """An estimate of one image on one call: its workgroups' cycles on full units, resources, or why it has
    none (`refused`).

    Or its time on a device: `milliseconds`, and `ratio`, the same as a share of the reference's in the same
    rounds. `may_spill`: a build accepts the image although it uses scratch.
    """

    cycles: float = 0.0
    milliseconds: float = 0.0
    ratio: float = 0.0
    may_spill: bool = False
    registers: int = 0
    occupancy: int = 0
    shared_bytes: int = 0
    scratch_bytes: int = 0
    refused: str = ""

    @property
    def usable(self) -> bool:
        """It fits, and no register is saved to memory, which a build refuses."""
        return not self.refused and (not self.scratch_bytes or self.may_spill)

    @property
    def measure(self) -> float:
        """What settings are compared by: the less, the better; 0 without an estimate."""
        return self.ratio or self.cycles


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One setting (none: the rules' choice) and its estimates by shape."""

    values: Values
    estimates: tuple[TunedCost, ...]

    @property
    def usable(self) -> bool:
        """On every shape."""
        return all(estimate.usable for estimate in self.estimates)


@dataclass(frozen=True, kw_only=True)
class TimedOn:
    """A device, and the versions of its driver's parts; `emulator` plays it, '' for hardware."""

    name: str
    versions: tuple[str, ...]
    emulator: str = ""


@dataclass(frozen=True, kw_only=True)
class Search:
    """`rules`: the present choice, whose values are `present`; `tried` in the order of trial; `offered`
    candidates in all; `known` estimates were read and not made. `timed`: the device that they are times
    of."""

    kernel: str
    arch: str
    functional: Mapping[str, str]
    shapes: tuple[str, ...]
    present: Values
    rules: Tried
    tried: tuple[Tried, ...]
    offered: int
    known: int
    seconds: float
    timed: TimedOn | None = None


OnTried = Callable[[Tried, int, int], None]


class EstimateStore:
    """Estimates by job, call, and the sources that make estimates: in the cache folder, and in shared places
    behind it."""

    def __init__(self, cache: Path, shared: SharedObjects = NOT_SHARED, *, made_by: str = "") -> None:
        """`made_by`: what else than the cost model makes them."""
        self._objects = ObjectCache(
            cache=cache, kind="tune-2", parse=_parsed, write=write_atomic, shared=shared
        )
        self._sources = made_by or model_digest()
        self._made: set[str] = set()
        self.known = 0

    def estimate(
        self, job: str, call: CostRequest, make: Callable[[], TunedCost], *, spilled: bool = False
    ) -> TunedCost:
        """The stored one, or the one that `make` makes. A damaged file is made again, and one that has no
        cycles because it spills where `spilled` ones are needed."""
        key = self._key(job, call)
        found = self._load(key)
        if found is None or (spilled and found.scratch_bytes and not found.measure):
            found = make()
            self.put(job, call, found)
        elif key not in self._made:
            self.known += 1
        return found

    def has(self, job: str, call: CostRequest) -> bool:
        """Whether it is stored."""
        return self._load(self._key(job, call)) is not None

    def put(self, job: str, call: CostRequest, cost: TunedCost) -> None:
        """Stores an estimate of this search."""
        key = self._key(job, call)
        self._made.add(key)
        self._objects.store(key, json.dumps(asdict(cost)).encode())

    def _load(self, key: str) -> TunedCost | None:
        try:
            return self._objects.load(key)
        except (OSError, DamagedObjectError):
            return None

    def _key(self, job: str, call: CostRequest) -> str:
        shape = json.dumps([sorted(call.shape.items()), call.case, sorted(call.keys.items())])
        return hashlib.sha256(json.dumps([self._sources, job, shape]).encode()).hexdigest()


def model_digest() -> str:
    """Digests of the sources that make estimates."""
    return group_digest("verifier") + group_digest("cost model")


def _parsed(data: bytes, key: str) -> TunedCost:
    try:
        return TunedCost(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise DamagedObjectError(str(error)) from error


class Estimates(Protocol):
    """Another place than this process where estimates are made, `together` settings at a time."""

    together: int

    def fill(self, calls: Sequence[CostRequest], found: Sequence[Candidate], store: EstimateStore) -> None:
        """Puts the estimates of candidates on calls into the store."""


class Times(Estimates, Protocol):
    """A device on which settings are timed."""

    on: TimedOn

    def identity(self, calls: Sequence[CostRequest], chosen: Sequence[Candidate]) -> str:
        """What times hold for, with the rules' choice of each call as the reference."""

    def reference(
        self, calls: Sequence[CostRequest], chosen: Sequence[Candidate], store: EstimateStore
    ) -> None:
        """Puts the reference's times into the store. Raises AotforgeError when it cannot be timed."""


def search(
    request: CostRequest,
    shapes: Sequence[Mapping[str, str]],
    *,
    seconds: float,
    on_tried: OnTried,
    shared: SharedObjects = NOT_SHARED,
    elsewhere: Estimates | None = None,
    times: Times | None = None,
) -> Search:
    """Estimates of the rules' choice and, nearest first, of as many other settings as the time allows; at
    least one batch.

    `shared`: places that may have estimates. `elsewhere` makes those of other settings, None for this
    machine. `times`: a device's times instead of estimates.

    Raises UnsupportedError for an arch without rates and for an image instead of a kernel, else what `cost`
    raises.
    """
    began = time.monotonic()
    if times is None:
        model_of(request.arch)
    request = replace(request, restricted=times is not None)
    loaded, kernel = find_kernel(request.root, request.images[0])
    functional = choose(kernel, request.keys)
    target = load_architectures(request.root / "manifests").find(request.arch).target(request.arch)
    offered = kernel.settings(target, functional)
    if not offered:
        raise UnsupportedError(f"{kernel.name} has no setting on {request.arch}")
    calls = [replace(request, shape=shape) for shape in shapes or [request.shape]]
    (own,) = find_candidates(request)
    chosen = [dispatched(call, own) for call in calls]
    store = EstimateStore(request.cache, shared, made_by=times.identity(calls, chosen) if times else "")
    if times:
        compile_together([replace(own, job=job) for job in own.plan.jobs], request)
        times.reference(calls, chosen, store)
    else:
        compile_together(chosen, request)
    rules = Tried(
        values={}, estimates=tuple(_rules(store, *pair) for pair in zip(calls, chosen, strict=True))
    )
    last = changed_setting(offered)
    others = candidates(last, target)
    tried = []
    place = times or elsewhere
    for one in _tried(request, calls, store, others, place, deadline=began + seconds):
        tried.append(one)
        on_tried(one, len(tried), len(others))
    return Search(
        kernel=f"{loaded.family.name}.{kernel.name}",
        arch=request.arch,
        functional={name: str(value) for name, value in functional.items()},
        shapes=tuple(", ".join(f"{n}={v}" for n, v in call.shape.items()) or "typical" for call in calls),
        present=present(last, tuple(space(last, target))),
        rules=rules,
        tried=tuple(tried),
        offered=len(others),
        known=store.known,
        seconds=time.monotonic() - began,
        timed=times.on if times else None,
    )


def changed_setting(offered: Sequence[Setting]) -> Setting:
    """The setting of the rules whose values a search changes: the last one with hints."""
    return next((one for one in reversed(offered) if one.hinted), offered[-1])


def _tried(
    request: CostRequest,
    calls: Sequence[CostRequest],
    store: EstimateStore,
    others: Sequence[Values],
    elsewhere: Estimates | None,
    *,
    deadline: float,
) -> Iterator[Tried]:
    together = elsewhere.together if elsewhere else _TOGETHER
    for begin in range(0, len(others), together):
        if begin and time.monotonic() > deadline:
            return
        batch = others[begin : begin + together]
        settings = tuple({name: str(value) for name, value in one.items()} for one in batch)
        found = find_candidates(replace(request, settings=settings))
        missing = [one for one in found if not all(store.has(one.job.key, call) for call in calls)]
        if missing and elsewhere:
            elsewhere.fill(calls, missing, store)
        elif missing:
            compile_together(missing, request)
        for values, one in zip(batch, found, strict=True):
            yield Tried(values=values, estimates=tuple(_estimate(store, call, one) for call in calls))


def _estimate(store: EstimateStore, call: CostRequest, one: Candidate) -> TunedCost:
    return store.estimate(one.job.key, call, lambda: estimated(call, one))


def _rules(store: EstimateStore, call: CostRequest, one: Candidate) -> TunedCost:
    """Of the rules' choice: also where it spills, as all others are compared with it."""
    return store.estimate(one.job.key, call, lambda: estimated(call, one, spilled=True), spilled=True)


def estimated(call: CostRequest, one: Candidate, *, spilled: bool = False) -> TunedCost:
    """Without an estimate where the image does not compile, exceeds the arch's memory, or, unless `spilled`,
    spills: it would not be built."""
    try:
        (image,) = compiled([one], call)
    except (CompileError, ResourceError) as error:
        return TunedCost(refused=reason(error))
    found = built(one, {one.job.key: image})
    if not found.usable and not spilled:
        return found
    try:
        done = measured(call, one, image)
    except ExecutionError as error:
        return TunedCost(refused=reason(error))
    # not `estimate.launch`: the calls that are executed leave most of a GPU idle, those of a program fill it
    rounds = done.work.workgroups / model_of(call.arch).units
    return replace(found, cycles=done.estimate.workgroup * rounds)


def built(one: Candidate, images: Mapping[JobKey, KernelImage]) -> TunedCost:
    """The resources of a candidate's image."""
    used = images[one.job.key].resources
    return TunedCost(
        registers=used.registers,
        occupancy=used.occupancy,
        shared_bytes=used.shared_bytes,
        scratch_bytes=used.scratch_bytes,
        may_spill=one.job.spills == "report",
    )


def reason(error: AotforgeError) -> str:
    """The last line of an error, without control characters."""
    text = error.what.splitlines()[-1].strip(" -")[:200]
    return "".join(one if one.isprintable() else " " for one in text) or "it does not compile"


def all_images(one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
    """All images of the candidate's plan. Raises CompileError, ResourceError."""
    jobs = one.plan.jobs
    found = compiled([replace(one, job=job) for job in jobs], request)
    return {job.key: image for job, image in zip(jobs, found, strict=True)}
