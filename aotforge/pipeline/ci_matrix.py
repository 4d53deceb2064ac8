"""Matrix of the CI jobs that compile parts of a build, for `.github/workflows/build.yml`."""

import math
from collections.abc import Sequence

from aotforge.errors import UnsupportedError
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.parts import MOST, split, weight
from aotforge.pipeline.requests import CiRequest
from aotforge.plan.model import CompileJob, Plan

SETUP_MINUTES = 4.0
"""Time of a runner for the environment and the interpreters."""

CPUS = 2

SECONDS_PER_UNIT = 3.2e-5
"""CPU time from source to verdict per unit of a job's weight, measured 2026-11-20."""


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
