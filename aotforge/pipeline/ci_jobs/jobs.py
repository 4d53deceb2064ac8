"""The jobs of a run: a pure function of the manifest, the plans and the effect of a change.

Jobs pass files in `ci-out/`, below the checkout: shards in `ci-out/parts`, the release in `ci-out/release`, the library for
Windows in `ci-out/windows`. A job's inputs are there before its command runs, its outputs afterwards.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aotforge.errors import ShardError, UnknownNameError, suggest
from aotforge.pipeline.ci_jobs.changes import Affected
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest, Division
from aotforge.pipeline.shards.split import MOST, split, weight
from aotforge.plan.model import CompileJob, Plan

Kind = Literal["check", "runtime", "images", "release"]
OUT = "ci-out"
PARTS, RELEASE, WINDOWS = f"{OUT}/parts", f"{OUT}/release", f"{OUT}/windows"
_CHECKS = {
    "lint": ("./dev", "lint"),
    "docs": ("./dev", "docs"),
    "test": (".ci/run",),
    "test-bare": (".ci/bare",),
}
"""Names and commands of the checks: the suite with every tool that it can use, and with Python, venv and g++ alone."""

_MATRIX = 256
"""Largest number of jobs of a GitHub matrix."""


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """One job. `command` is executed in a clean checkout.

    `needs` are names of jobs whose files are put into the folder `inputs` before; `artefact` names the content of the folder
    `output` afterwards; empty for none. `packages` are Debian packages that the runner needs; `minutes` is the estimate,
    `timeout` the limit in minutes.
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
        """The command as a shell command line."""
        return shlex.join(self.command)


def make_jobs(
    manifest: CiManifest,
    profile: str,
    plans: Sequence[Plan],
    affected: Affected,
    *,
    shards: int | None = None,
) -> tuple[CiJob, ...]:
    """Checks, and for what is affected: the runtime, every pack's shards, and the release merged from them.

    `plans` has one plan per pack; `shards` fixes their number per pack. A release has the affected packs; a change of the
    runtime alone gives one of the first pack. Raises ShardError when there are more jobs than a matrix may have.
    """
    limit = manifest.timeouts.check
    checks = [
        CiJob(
            name=name,
            kind="check",
            command=command,
            executor="local",
            minutes=limit / 2,
            timeout=limit,
        )
        for name, command in _CHECKS.items()
    ]
    built = [plan for plan in plans if plan.pack in affected.packs]
    if affected.runtime and not built:
        built = list(plans[:1])
    if not built:
        return tuple(checks)
    builds = _Builds(manifest, profile, shards)
    runtime = builds.runtime(built)
    windows = [builds.windows()] if affected.runtime and "windows" in manifest.platforms else []
    images = [job for plan in built for job in builds.images(plan)]
    if (count := len(images) + len(windows) + 1) > _MATRIX:
        raise ShardError(
            f"{count} jobs are more than the {_MATRIX} that a matrix may have",
            hint="raise minutes_per_job in manifests/ci.yaml, or ./dev ci.matrix with fewer --shards",
        )
    return (*checks, runtime, *windows, *images, builds.release(built, [runtime, *images]))


class _Builds:
    """Makes the jobs that build."""

    def __init__(self, manifest: CiManifest, profile: str, shards: int | None) -> None:
        self._manifest, self._profile, self._shards = manifest, profile, shards

    def _job(
        self, name: str, kind: Kind, command: Sequence[str], output: str, *, minutes: float = 0, **more: Any
    ) -> CiJob:
        executor = self._manifest.executor
        where = () if executor == "local" else ("--executor", executor)
        return CiJob(
            name=name,
            kind=kind,
            command=("./dev", "build", *command, "--output", output, *where),
            output=output,
            executor=executor,
            minutes=minutes or float(self._manifest.division.setup_minutes),
            timeout=getattr(self._manifest.timeouts, kind),
            **more,
        )

    def _of(self, plans: Sequence[Plan]) -> tuple[str, ...]:
        archs = ",".join(arch for plan in plans for arch in plan.archs)
        return ("--arch", archs, "--profile", self._profile)

    def runtime(self, plans: Sequence[Plan]) -> CiJob:
        """The library."""
        command = (*self._of(plans), "--shard", "runtime")
        return self._job("runtime-linux", "runtime", command, PARTS, artefact="part-runtime-linux")

    def windows(self) -> CiJob:
        """The library for Windows: a zip file of its own, which is not part of the release."""
        name = "runtime-windows"
        packages = self._manifest.packages.get(name, ()) if self._manifest.executor == "local" else ()
        return self._job(
            name, "runtime", ("--platform", "windows"), WINDOWS, artefact=name, packages=packages
        )

    def images(self, plan: Plan) -> Iterator[CiJob]:
        """The shards of a pack."""
        division = self._manifest.division
        count = self._shards or shard_count(plan, division)
        for number, part in enumerate(split(plan.jobs, count), start=1):
            name = f"images-{plan.pack}-{self._profile}-{number}of{count}"
            command = (*self._of([plan]), "--shard", f"{number}/{count}")
            minutes = round(estimate(part, division), 1)
            yield self._job(name, "images", command, PARTS, artefact=f"part-{name}", minutes=minutes)

    def release(self, plans: Sequence[Plan], needs: Sequence[CiJob]) -> CiJob:
        """The release, merged from the shards of the jobs `needs`."""
        name = f"release-{self._profile}"
        names = tuple(job.name for job in needs)
        command = (*self._of(plans), "--gather", PARTS)
        return self._job(name, "release", command, RELEASE, artefact=name, needs=names, inputs=PARTS)


def estimate(jobs: Sequence[CompileJob], division: Division) -> float:
    """Minutes that a runner needs for these compile jobs, with its set-up."""
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
