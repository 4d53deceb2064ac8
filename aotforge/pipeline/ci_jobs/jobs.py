"""The jobs of a run: from the manifest, the plans and what a change affects; pure, so the same everywhere.

Jobs hand files on in `ci-out/`, below the checkout: parts of a release in `ci-out/parts`, the release in `ci-out/release`, the
library for Windows in `ci-out/windows`. What a job needs
lies there before its command runs, what it makes lies there afterwards.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aotforge.errors import ShardError, UnknownNameError, suggest
from aotforge.pipeline.ci_jobs.changes import Affected
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest, Division
from aotforge.pipeline.shards.split import MOST, split, weight
from aotforge.plan.model import CompileJob, Plan

Kind = Literal["check", "runtime", "images", "release"]
OUT = "ci-out"
PARTS, RELEASE, WINDOWS = f"{OUT}/parts", f"{OUT}/release", f"{OUT}/windows"
_MATRIX = 256
"""Jobs that one matrix of GitHub's may have."""


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """One job. `command` is what its runner executes in a clean checkout, word by word.

    `needs` are names of jobs whose files `inputs` gets before; `artefact` names what `output` holds afterwards; both empty where there is
    none. `packages` are Debian's that the runner needs; `minutes` is the estimate, `timeout` the limit in minutes.
    """

    name: str
    kind: Kind
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    inputs: str = ""
    output: str = ""
    artefact: str = ""
    executor: str
    packages: tuple[str, ...] = ()
    minutes: float
    timeout: int

    @property
    def line(self) -> str:
        """The command as a line for a shell."""
        return shlex.join(self.command)


@dataclass(frozen=True, kw_only=True)
class CiRequest:
    """What the jobs are for: the manifest's chips and profile unless others are named; `shards` fixes their number."""

    archs: tuple[str, ...]
    profile: str
    shards: int | None = None


def make_jobs(
    manifest: CiManifest, request: CiRequest, plans: Sequence[Plan], affected: Affected
) -> tuple[CiJob, ...]:
    """Checks, and for what is affected: the runtime, every pack's shards, and the release gathered from them.

    `plans` are the request's, one per pack. A release is gathered of the affected packs; a change of the runtime alone shows in one of
    the first pack. Raises ShardError when there would be more jobs than a matrix may have.
    """
    limits = manifest.timeouts
    checks = [
        CiJob(name=name, kind="check", command=("./dev", name), executor="local", minutes=float(limits.check) / 2, timeout=limits.check)
        for name in ("lint", "test")
    ]  # fmt: skip
    built = [plan for plan in plans if plan.pack in affected.packs]
    if affected.runtime and not built:
        built = list(plans[:1])
    if not built:
        return tuple(checks)
    archs = ",".join(arch for plan in built for arch in plan.archs)
    where = () if manifest.executor == "local" else ("--executor", manifest.executor)
    windows = [_windows(manifest, where)] if affected.runtime and "windows" in manifest.platforms else []
    build = ("./dev", "build", "--arch", archs, "--profile", request.profile)
    runtime = CiJob(
        name="runtime-linux", kind="runtime", command=(*build, "--shard", "runtime", "--output", PARTS, *where),
        output=PARTS, artefact="part-runtime-linux", executor=manifest.executor,
        minutes=float(manifest.division.setup_minutes), timeout=limits.runtime,
    )  # fmt: skip
    images = [job for plan in built for job in _images(manifest, request, plan, where)]
    if len(images) + len(windows) + 1 > _MATRIX:
        raise ShardError(
            f"{len(images) + len(windows) + 1} jobs are more than the {_MATRIX} that a matrix may have",
            hint="raise minutes_per_job in manifests/ci.yaml, or name fewer --shards",
        )
    release = CiJob(
        name=f"release-{request.profile}", kind="release", needs=tuple(job.name for job in (runtime, *images)), inputs=PARTS,
        command=(*build, "--gather", PARTS, "--output", RELEASE, *where),
        output=RELEASE, artefact=f"release-{request.profile}", executor=manifest.executor,
        minutes=float(manifest.division.setup_minutes), timeout=limits.release,
    )  # fmt: skip
    return (*checks, runtime, *windows, *images, release)


def _windows(manifest: CiManifest, where: tuple[str, ...]) -> CiJob:
    """The library for Windows: a zip file of its own, which no release is gathered from."""
    name = "runtime-windows"
    return CiJob(
        name=name, kind="runtime", command=("./dev", "build", "--platform", "windows", "--output", WINDOWS, *where),
        output=WINDOWS, artefact=name, executor=manifest.executor,
        packages=manifest.packages.get(name, ()) if manifest.executor == "local" else (),
        minutes=float(manifest.division.setup_minutes), timeout=manifest.timeouts.runtime,
    )  # fmt: skip


def _images(
    manifest: CiManifest, request: CiRequest, plan: Plan, where: tuple[str, ...]
) -> tuple[CiJob, ...]:
    count = request.shards or shard_count(plan, manifest.division)
    jobs = []
    for number, part in enumerate(split(plan.jobs, count), start=1):
        name = f"images-{plan.pack}-{request.profile}-{number}of{count}"
        command = (
            *("./dev", "build", "--arch", ",".join(plan.archs), "--profile", request.profile),
            *("--shard", f"{number}/{count}", "--output", PARTS, *where),
        )
        jobs.append(
            CiJob(name=name, kind="images", command=command, output=PARTS, artefact=f"part-{name}", executor=manifest.executor,
                  minutes=round(estimate(part, manifest.division), 1), timeout=manifest.timeouts.images)
        )  # fmt: skip
    return tuple(jobs)


def estimate(jobs: Sequence[CompileJob], division: Division) -> float:
    """Minutes that a runner takes for these compile jobs, set-up included."""
    seconds = sum(map(weight, jobs)) * division.seconds_per_unit / division.cpus
    return division.setup_minutes + seconds / 60


def shard_count(plan: Plan, division: Division) -> int:
    """The fewest shards of the plan that take `minutes_per_job` each, by the estimate; at most as many as there are images."""
    work = estimate(plan.jobs, division) - division.setup_minutes
    wanted = math.ceil(work / (division.minutes_per_job - division.setup_minutes))
    return max(1, min(wanted, len(plan.jobs), MOST))


def find_job(jobs: Sequence[CiJob], name: str) -> CiJob:
    """A job by name. Raises UnknownNameError."""
    for job in jobs:
        if job.name == name:
            return job
    raise UnknownNameError(f"unknown CI job {name}", hint=suggest(name, (job.name for job in jobs)))
