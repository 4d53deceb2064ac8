"""Parts of a build: jobs that one machine compiles and verifies into a cache."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotforge.compile.scheduler import cost
from aotforge.errors import UnsupportedError
from aotforge.library.interface import check_interfaces
from aotforge.pipeline.build_release import EventCounter, ImageCounts, resolve_targets
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import open_builder, require_executors
from aotforge.pipeline.requests import PartRequest
from aotforge.pipeline.shared_cache import shared_objects
from aotforge.plan.model import CompileJob
from aotforge.run.step import KERNELS

MOST = 256
"""Largest number of parts: the limit of a GitHub matrix."""

FIXED = 20_000.0
"""Fixed cost of an image from source to verdict, in units of the scheduler's cost."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Part `number` (from 1) of `count`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, kw_only=True)
class PartReport(ImageCounts):
    """A compiled part. `images` are its jobs."""

    part: Part
    images: int
    packs: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {**vars(self), "part": str(self.part)}

    def lines(self) -> list[str]:
        """Lines of text."""
        return [
            f"part {self.part} of {', '.join(self.packs)}: {self.images} images, {self.compiled} compiled, "
            f"{self.cached} from the cache; {self.executed} executed, {self.known} verified before"
        ]


def parse_part(text: str) -> Part:
    """`2/5`. Raises UnsupportedError."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text, re.ASCII)
    part = Part(number=int(match[1]), count=int(match[2])) if match else None
    if part is None or not 1 <= part.number <= part.count <= MOST:
        raise UnsupportedError(
            f"{text!r} is not a valid part",
            hint=f"--part NUMBER/COUNT, from 1 to at most {MOST}: --part 2/5",
        )
    return part


def weight(job: CompileJob) -> float:
    """Cost of a job from source to verdict, in units of the scheduler's cost."""
    return FIXED + cost(job)


def split(jobs: Sequence[CompileJob], count: int) -> tuple[tuple[CompileJob, ...], ...]:
    """`count` parts of about the same weight, every job in exactly one, each in the order of `jobs`.

    The heaviest job goes first, to the lightest part so far; job key and part number decide ties. No part
    weighs more than 4/3 of the heaviest part of the best division (Graham, 1969).
    """
    parts: list[set[str]] = [set() for _ in range(count)]
    loads = [(0.0, number) for number in range(count)]
    for job in sorted(jobs, key=lambda job: (-weight(job), job.key)):
        load, number = heapq.heappop(loads)
        parts[number].add(job.key)
        heapq.heappush(loads, (load + weight(job), number))
    return tuple(tuple(job for job in jobs if job.key in keys) for keys in parts)


def compile_part(request: PartRequest, *, observer: BuildObserver) -> PartReport:
    """Compiles and verifies the request's part of every pack into the cache folder and the shared cache."""
    part = parse_part(request.part)
    executions, plans = resolve_targets(request, (KERNELS,), observer=observer)
    check_interfaces(request.root, plans)
    if request.verify:
        require_executors(plans, request.cache)
    counter = EventCounter(observer)
    parts = [replace(plan, jobs=split(plan.jobs, part.count)[part.number - 1]) for plan in plans]
    with (
        shared_objects(request, observer.note) as shared,
        open_builder(request, shared, counter, execution=executions.kernels) as builder,
    ):
        for plan in parts:
            if plan.jobs:
                builder.build(plan, verify=request.verify)
    return PartReport(
        part=part,
        images=sum(len(plan.jobs) for plan in parts),
        packs=tuple(plan.pack for plan in plans),
        **counter.counts(),
    )
