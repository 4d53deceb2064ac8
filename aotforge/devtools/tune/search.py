"""Search of a kernel's settings for one functional: compiled, estimated, within a budget of time.

What is known is read again: images from the compile cache, estimates from `<cache>/tune-2`. A search that
ends for lack of time therefore resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.base.object_cache import NOT_SHARED, DamagedObjectError, ObjectCache, SharedObjects
from aotforge.base.source_groups import group_digest
from aotforge.compile.model import KernelImage
from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    changed,
    changed_setting,
    compile_together,
    compiled,
    find_candidates,
    offered_settings,
)
from aotforge.devtools.cost.rates import model_of
from aotforge.devtools.cost.run_cost import dispatched, measured
from aotforge.devtools.selection import choose, find_kernel
from aotforge.devtools.tune.tune_report import Search, TimedOn, Tried, TunedCost, Values
from aotforge.errors import AotforgeError, CompileError, ExecutionError, ResourceError
from aotforge.plan.model import JobKey
from aotforge.rules import Functional, Kernel, Setting, Target
from aotforge.targets.backends import backend_of

_LEAST = 16  # rows and columns of the smallest matrix instruction


def space(setting: Setting, target: Target) -> dict[str, tuple[int, ...]]:
    """The values of each name, the present one among them.

    Block sizes (constants named BLOCK...) are from a quarter to the double; options are those that mean
    something on the arch.
    """
    offered = {
        name: tuple(size for size in (now // 4, now // 2, now, now * 2) if size >= min(_LEAST, now))
        for name, now in setting.constants.items()
        if name.startswith("BLOCK") and isinstance(now, int) and not isinstance(now, bool) and now > 0
    }
    offered |= {"num_warps": (2, 4, 8) if target.warp_size == 64 else (4, 8, 16), "num_stages": (1, 2)}
    offered |= backend_of(target.vendor).search_options(target)
    now = present(setting, tuple(offered))
    return {name: tuple(sorted({*values, now[name]})) for name, values in offered.items()}


def present(setting: Setting, names: Sequence[str]) -> Values:
    """The values that a setting has."""
    options = {name: getattr(setting, name) for name in names if name not in setting.constants}
    return {name: int(setting.constants.get(name, options.get(name, 0))) for name in names}


def candidates(setting: Setting, target: Target) -> list[Values]:
    """All other combinations, the nearest first: by the number of changed values, then by the ratio of block
    sizes."""
    offered = space(setting, target)
    now = present(setting, tuple(offered))

    def distance(values: Values) -> tuple[int, float, tuple[int, ...]]:
        changed = sum(values[name] != now[name] for name in offered)
        sizes = sum(abs(math.log2(values[name] / now[name])) for name in values if name.startswith("BLOCK"))
        return changed, sizes, tuple(values.values())

    every = [dict(zip(offered, chosen, strict=True)) for chosen in product(*offered.values())]
    return sorted((values for values in every if values != now), key=distance)


def fitting(
    every: Sequence[Values], kernel: Kernel, functional: Functional, setting: Setting, target: Target
) -> list[Values]:
    """Those whose workgroup has enough shared memory, as far as the rules state what it needs."""
    needed = kernel.shared_bytes
    if needed is None:
        return list(every)

    def made(values: Values) -> Setting:
        return changed(setting, {name: str(value) for name, value in values.items()}, kernel.name)

    return [values for values in every if needed(functional, made(values)) <= target.shared_bytes]


OnTried = Callable[[Tried, int, int], None]


class EstimateStore:
    """Estimates by job, call, and what makes them: in the cache folder, and in shared places behind it."""

    def __init__(self, cache: Path, shared: SharedObjects, *, made_by: str) -> None:
        self._objects = ObjectCache(
            cache=cache, kind="tune-2", parse=_parsed, write=write_atomic, shared=shared
        )
        self._made_by = made_by

    def load(self, job: str, call: CostRequest) -> TunedCost | None:
        """The stored one; a damaged file has none."""
        try:
            return self._objects.load(self._key(job, call))
        except (OSError, DamagedObjectError):
            return None

    def tried(self, values: Values, job: str, calls: Sequence[CostRequest]) -> Tried | None:
        """A setting with its estimates on all calls, where they are stored."""
        costs = [cost for call in calls if (cost := self.load(job, call))]
        return Tried(values=values, estimates=tuple(costs)) if len(costs) == len(calls) else None

    def put(self, job: str, calls: Sequence[CostRequest], cost: TunedCost) -> None:
        """Stores the estimate of an image on calls."""
        for call in calls:
            self._objects.store(self._key(job, call), json.dumps(asdict(cost)).encode())

    def _key(self, job: str, call: CostRequest) -> str:
        shape = json.dumps([sorted(call.shape.items()), call.case, sorted(call.keys.items())])
        return hashlib.sha256(json.dumps([self._made_by, job, shape]).encode()).hexdigest()


def model_digest() -> str:
    """Digests of the sources that make estimates."""
    return group_digest("verifier") + group_digest("cost model")


def _parsed(data: bytes, key: str) -> TunedCost:
    try:
        return TunedCost(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise DamagedObjectError(str(error)) from error


@dataclass(kw_only=True)
class Estimates:
    """Makes estimates on this machine, of `together` settings at a time."""

    together: int = 8  # one per CPU of a workstation, and few where the time ends

    @property
    def on(self) -> TimedOn | None:
        """The device, where they are times."""
        return None

    def made_by(self, calls: Sequence[CostRequest], chosen: Sequence[Candidate]) -> str:
        """What they hold for, with the rules' choice of each call. Raises UnsupportedError."""
        model_of(calls[0].arch)
        return model_digest()

    def reference(
        self, calls: Sequence[CostRequest], chosen: Sequence[Candidate], store: EstimateStore
    ) -> None:
        """Puts those of the rules' choice, by call, into the store: also where it spills, as all others are
        compared with it."""
        compile_together(chosen, calls[0])
        for call, candidate in zip(calls, chosen, strict=True):
            known = store.load(candidate.job.key, call)
            if known is None or (known.scratch_bytes and not known.measure):
                store.put(candidate.job.key, [call], estimated(call, candidate, spilled=True))

    def fill(self, calls: Sequence[CostRequest], missing: Sequence[Candidate], store: EstimateStore) -> None:
        """Puts those of candidates on calls into the store."""
        compile_together(missing, calls[0])
        for candidate in missing:
            for call in calls:
                if store.load(candidate.job.key, call) is None:
                    store.put(candidate.job.key, [call], estimated(call, candidate))


def search(
    request: CostRequest,
    shapes: Sequence[Mapping[str, str]],
    place: Estimates,
    *,
    seconds: float,
    on_tried: OnTried,
    shared: SharedObjects = NOT_SHARED,
) -> Search:
    """Estimates of the rules' choice and, nearest first, of as many other settings as the time allows; at
    least one batch.

    `place` makes them, `shared` places may have them. Raises UnsupportedError for an arch without rates and
    for an image instead of a kernel, else what `cost` raises.
    """
    began = time.monotonic()
    request = replace(request, restricted=place.on is not None)
    loaded, kernel = find_kernel(request.root, request.images[0])
    functional = choose(kernel, request.keys)
    target, offered = offered_settings(request, kernel, functional)
    calls = [replace(request, shape=shape) for shape in shapes or [request.shape]]
    (own,) = find_candidates(request)
    chosen = [dispatched(call, own) for call in calls]
    store = EstimateStore(request.cache, shared, made_by=place.made_by(calls, chosen))
    pairs = list(zip(calls, chosen, strict=True))
    known = sum(store.load(candidate.job.key, call) is not None for call, candidate in pairs)
    place.reference(calls, chosen, store)
    rules = [cost for call, candidate in pairs if (cost := store.load(candidate.job.key, call))]
    last = changed_setting(offered)
    others = fitting(candidates(last, target), kernel, functional, last, target)
    tried: list[Tried] = []
    for begin in range(0, len(others), place.together):
        if begin and time.monotonic() > began + seconds:
            break
        batch = others[begin : begin + place.together]
        settings = tuple({name: str(value) for name, value in combination.items()} for combination in batch)
        batch_candidates = find_candidates(replace(request, settings=settings))
        missing = [
            candidate for candidate in batch_candidates if store.tried({}, candidate.job.key, calls) is None
        ]
        known += len(calls) * (len(batch_candidates) - len(missing))
        if missing:
            place.fill(calls, missing, store)
        for values, candidate in zip(batch, batch_candidates, strict=True):
            setting = store.tried(values, candidate.job.key, calls)
            assert setting is not None, candidate.name
            tried.append(setting)
            on_tried(setting, len(tried), len(others))
    return Search(
        kernel=f"{loaded.family.name}.{kernel.name}",
        arch=request.arch,
        functional={name: str(value) for name, value in functional.items()},
        shapes=tuple(", ".join(f"{n}={v}" for n, v in call.shape.items()) or "typical" for call in calls),
        present=present(last, tuple(space(last, target))),
        rules=Tried(values={}, estimates=tuple(rules)),
        tried=tuple(tried),
        offered=len(others),
        known=known,
        seconds=time.monotonic() - began,
        timed=place.on,
    )


def estimated(call: CostRequest, candidate: Candidate, *, spilled: bool = False) -> TunedCost:
    """Without an estimate where the image does not compile, exceeds the arch's memory, or, unless `spilled`,
    spills: it would not be built."""
    try:
        (image,) = compiled([candidate], call)
    except (CompileError, ResourceError) as error:
        return TunedCost(refused=reason(error))
    cost = built(candidate, {candidate.job.key: image})
    if not cost.usable and not spilled:
        return cost
    try:
        done = measured(call, candidate, image)
    except ExecutionError as error:
        return TunedCost(refused=reason(error))
    # not `estimate.launch`: the calls that are executed leave most of a GPU idle, those of a program fill it
    rounds = done.work.workgroups / model_of(call.arch).units
    return replace(cost, cycles=done.estimate.workgroup * rounds)


def built(candidate: Candidate, images: Mapping[JobKey, KernelImage]) -> TunedCost:
    """The resources of a candidate's image."""
    used = images[candidate.job.key].resources
    return TunedCost(
        registers=used.registers,
        occupancy=used.occupancy,
        shared_bytes=used.shared_bytes,
        scratch_bytes=used.scratch_bytes,
        may_spill=candidate.job.spills == "report",
    )


def reason(error: AotforgeError) -> str:
    """The last line of an error, without control characters."""
    text = error.what.splitlines()[-1].strip(" -")[:200]
    return "".join(char if char.isprintable() else " " for char in text) or "it does not compile"


def all_images(candidate: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
    """All images of the candidate's plan. Raises CompileError, ResourceError."""
    jobs = candidate.plan.jobs
    images = compiled([replace(candidate, job=job) for job in jobs], request)
    return {job.key: image for job, image in zip(jobs, images, strict=True)}
