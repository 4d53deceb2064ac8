"""Parts of a build, which machines compile and verify into caches, and the matrix of CI that has them."""

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotforge.compile.scheduler import cost
from aotforge.errors import UnsupportedError
from aotforge.library.interface import check_interfaces
from aotforge.pipeline.build_release import EventCounter, ImageCounts, resolve_targets
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import make_plans, open_builder, require_executors
from aotforge.pipeline.requests import CiRequest, PartRequest
from aotforge.pipeline.shared_cache import shared_objects
from aotforge.plan.model import CompileJob, Plan
from aotforge.run.step import KERNELS

MOST = 256
"""Largest number of parts: the limit of a GitHub matrix."""

FIXED = 20_000.0
"""Fixed cost of an image from source to verdict, in units of the scheduler's cost."""

SETUP_MINUTES = 4.0
"""Time of a runner for the environment and the interpreters."""

CPUS = 2

SECONDS_PER_UNIT = 3.2e-5
"""CPU time from source to verdict per unit of a job's weight, measured 2026-11-20."""


@dataclass(frozen=True, kw_only=True)
class PartReport(ImageCounts):
    """A compiled part. `images` are its jobs."""

    part: str
    images: int
    packs: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Lines of text."""
        return [
            f"part {self.part} of {', '.join(self.packs)}: {self.images} images, {self.compiled} compiled, "
            f"{self.cached} from the cache; {self.executed} executed, {self.known} verified before"
        ]


def parse_part(text: str) -> tuple[int, int]:
    """Number (from 1) and count of `2/5`. Raises UnsupportedError."""
    if match := re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text, re.ASCII):
        number, count = int(match[1]), int(match[2])
        if 1 <= number <= count <= MOST:
            return number, count
    hint = f"--part NUMBER/COUNT, from 1 to at most {MOST}: --part 2/5"
    raise UnsupportedError(f"{text!r} is not a valid part", hint=hint)


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
    number, count = parse_part(request.part)
    executions, plans = resolve_targets(request, (KERNELS,), observer=observer)
    check_interfaces(request.root, plans)
    if request.verify:
        require_executors(plans, request.cache)
    counter = EventCounter(observer)
    parts = [replace(plan, jobs=split(plan.jobs, count)[number - 1]) for plan in plans]
    with (
        shared_objects(request, observer.note) as shared,
        open_builder(request, shared, counter, execution=executions[KERNELS]) as builder,
    ):
        for plan in parts:
            if plan.jobs:
                builder.build(plan, verify=request.verify)
    return PartReport(
        part=f"{number}/{count}",
        images=sum(len(plan.jobs) for plan in parts),
        packs=tuple(plan.pack for plan in plans),
        **counter.counts(),
    )


def matrix(request: CiRequest) -> list[dict[str, object]]:
    """One row per job. Raises UnsupportedError for a matrix that is too large."""
    rows: list[dict[str, object]] = [
        {
            "name": f"{plan.pack}-{number}of{count}",
            "arch": ",".join(plan.archs),
            "part": f"{number}/{count}",
            "minutes": round(estimate(jobs), 1),
        }
        for plan in make_plans(request)
        for count in (part_count(plan, request.minutes),)
        for number, jobs in enumerate(split(plan.jobs, count), start=1)
    ]
    if len(rows) > MOST:
        raise UnsupportedError(
            f"{len(rows)} jobs are more than the {MOST} that a matrix of GitHub may have",
            hint=f"./dev ci.matrix --minutes N, with more than {request.minutes:g}",
        )
    return rows


def estimate(jobs: Sequence[CompileJob]) -> float:
    """Minutes that a runner needs for these jobs, with its set-up."""
    return SETUP_MINUTES + sum(map(weight, jobs)) * SECONDS_PER_UNIT / CPUS / 60


def part_count(plan: Plan, minutes: float) -> int:
    """The fewest parts of the plan that take `minutes` each. Raises UnsupportedError."""
    if minutes <= SETUP_MINUTES:
        raise UnsupportedError(
            f"--minutes {minutes:g} leaves no time to compile",
            cause=f"a runner needs {SETUP_MINUTES:g} minutes for its environment",
            hint="--minutes 5",
        )
    wanted = math.ceil((estimate(plan.jobs) - SETUP_MINUTES) / (minutes - SETUP_MINUTES))
    return max(1, min(wanted, len(plan.jobs)))
