"""The division of compile jobs into shards: a pure function of the jobs."""

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from aotforge.compile.scheduler import cost
from aotforge.errors import ShardError
from aotforge.plan.model import CompileJob

MOST = 256
"""Largest number of shards of one pack: the limit of a GitHub matrix."""

FIXED = 20_000.0
"""Fixed cost of an image from source to verdict, in units of the scheduler's cost. Measured with `seconds_per_unit` of
manifests/ci.yaml: docs/ci.md."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Shard `number` (from 1) of `count`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """`2/5`. Raises ShardError."""
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    shard = Shard(number=int(found[1]), count=int(found[2])) if found else None
    if shard is None or not 1 <= shard.number <= shard.count <= MOST:
        raise ShardError(
            f"{text!r} is not a valid shard",
            hint=f"--shard NUMBER/COUNT, from 1 to at most {MOST}: --shard 2/5",
        )
    return shard


def weight(job: CompileJob) -> float:
    """Cost of a job from source to verdict, in units of the scheduler's cost."""
    return FIXED + cost(job)


def split(jobs: Sequence[CompileJob], count: int) -> tuple[tuple[CompileJob, ...], ...]:
    """`count` shards of about the same weight, every job in exactly one, each in the order of `jobs`.

    The heaviest job goes first, to the lightest shard so far; ties are decided by job key and shard number, so the order of
    `jobs` does not matter. No shard weighs more than 4/3 of the heaviest shard of the best division (R. L. Graham, 1969).
    """
    shards: list[set[str]] = [set() for _ in range(count)]
    loads = [(0.0, number) for number in range(count)]
    for job in sorted(jobs, key=lambda job: (-weight(job), job.key)):
        load, number = heapq.heappop(loads)
        shards[number].add(job.key)
        heapq.heappush(loads, (load + weight(job), number))
    return tuple(tuple(job for job in jobs if job.key in keys) for keys in shards)
