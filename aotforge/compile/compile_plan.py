"""The compile stage: takes a plan, returns its images, from the cache or compiled into it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.architectures import Architectures
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import Summary
from aotforge.compile.image_set import ImageSet, image_of, spills, violations
from aotforge.compile.model import CompileEvent, EventKind, KernelImage, OnEvent
from aotforge.compile.pool import WorkerLimits
from aotforge.compile.scheduler import CompileSettings, JobRunner, Outcome, Scheduler
from aotforge.errors import CompileError, ResourceError, UnknownNameError, suggest
from aotforge.plan.model import CompileJob, JobKey, Plan
from aotforge.toolchain.allocator import build_allocator
from aotforge.toolchain.triton import Toolchain, read_toolchain

if TYPE_CHECKING:
    from aotforge.run.step import ExecutionTarget

_LISTED = 20

MakeRunner = Callable[[list[CompileJob], CompileSettings], JobRunner]
CommandOf = Callable[[CompileJob], str]
"""The command that compiles a job again."""


def compile_plan(
    plan: Plan,
    *,
    kernels_root: Path,
    architectures: Architectures,
    cache: Cache,
    jobs: int | None = None,
    limits: WorkerLimits | None = None,
    on_event: OnEvent | None = None,
    execution: ExecutionTarget | None = None,
    runner: MakeRunner | None = None,
    packages: Path | None = None,
    command: CommandOf | None = None,
) -> ImageSet:
    """Every image of the plan, from the cache or compiled into it: on this machine, in `execution`, or by
    `runner`.

    `jobs` is the most workers to start; memory and CPUs may allow fewer. `packages` is a folder with another
    Triton for workers of this machine, `command` gives the reproduction of a failure. Raises CompileError
    when jobs failed twice (all others are finished first), ResourceError for spills and shared memory that
    must be rejected, CacheError, ToolchainError; with an execution target also LimitError and ExecutorError.
    Finished images stay in the cache in every case.
    """
    build = _Build(plan, architectures, cache, on_event)
    build.scan()
    if build.missing:
        failures = _compile(
            build.missing,
            cache,
            kernels_root,
            limits,
            execution,
            workers=jobs,
            report=build.on_outcome,
            runner=runner,
            packages=packages,
        )
        if failures:
            raise _compile_error(plan, failures, command or partial(reproduction, plan, execution=execution))
    return build.images()


def compile_one(
    job: CompileJob,
    *,
    kernels_root: Path,
    architectures: Architectures,
    scratch: Path,
    limits: WorkerLimits | None = None,
    execution: ExecutionTarget | None = None,
) -> KernelImage:
    """One job in a fresh worker, without the cache: the reproduction of a failure. `scratch` is an empty
    folder.

    Raises CompileError with everything that the worker printed, CacheError, ToolchainError; with an execution
    target also LimitError and ExecutorError.
    """
    with Cache(scratch) as cache:
        failures = _compile(
            [job], cache, kernels_root, limits, execution, workers=1, report=lambda outcome: None
        )
        if failures:
            raise CompileError(f"{job.label}: {failures[0].detail}\n{failures[0].output}".rstrip())
        entry = cache.load(job.key)
    assert entry is not None
    return image_of(entry, architectures.architectures[job.target.arch])


def toolchain_of(execution: ExecutionTarget | None, *, cache: Path) -> Callable[[str], Toolchain]:
    """For `plan_project`: reads the compiler of this machine, or of the execution target's rootfs."""
    if execution is None or execution.rootfs is None:
        return read_toolchain
    from aotforge.compile.remote import rootfs_toolchain  # noqa: PLC0415 - executors

    return lambda pinned: rootfs_toolchain(execution, pinned, cache=cache)


def _compile(
    jobs: list[CompileJob],
    cache: Cache,
    kernels_root: Path,
    limits: WorkerLimits | None,
    execution: ExecutionTarget | None,
    *,
    workers: int | None,
    report: Callable[[Outcome], None],
    runner: MakeRunner | None = None,
    packages: Path | None = None,
) -> list[Outcome]:
    """Compile into the cache, here, in the execution target's rootfs, or by `runner`; the failures."""
    settings = CompileSettings(
        store=cache,
        allocator=build_allocator(cache.folder),
        kernels_root=kernels_root,
        workers=workers,
        limits=limits or WorkerLimits(),
        report=report,
        packages=packages,
    )
    scheduler: JobRunner
    if runner is not None:
        scheduler = runner(jobs, settings)
    elif execution is not None and execution.rootfs is not None:
        from aotforge.compile.remote import RemoteScheduler  # noqa: PLC0415 - as above

        scheduler = RemoteScheduler(jobs, settings, execution=execution)
    else:
        scheduler = Scheduler(jobs, settings)
    scheduler.run()
    return scheduler.failures


def find_job(plans: Sequence[Plan], name: str) -> CompileJob:
    """A job by label, key, or at least eight digits of the key. Raises UnknownNameError."""
    for job in (job for plan in plans for job in plan.jobs):
        if name == job.label or (len(name) >= 8 and job.key.startswith(name)):
            return job
    archs = ",".join(arch for plan in plans for arch in plan.archs)
    raise UnknownNameError(
        f"unknown job {name}",
        cause=suggest(name, (job.label for plan in plans for job in plan.jobs)),
        hint=f"`./dev plan --arch {archs} --profile {plans[0].profile}` lists all jobs",
    )


@dataclass
class _Build:
    """The images of a plan that are known so far."""

    plan: Plan
    architectures: Architectures
    cache: Cache
    on_event: OnEvent | None = None
    summaries: dict[JobKey, Summary] = field(default_factory=dict)
    missing: list[CompileJob] = field(default_factory=list)

    def scan(self) -> None:
        """Verify the entries of the cache."""
        self.cache.expect(job.key for job in self.plan.jobs)
        for job in self.plan.jobs:
            try:
                entry = self.cache.load(job.key)
            except DamagedObjectError as error:
                entry = None
                self._report("damaged", job, f"cache entry {error}; it is compiled again")
            if entry is None:
                self.missing.append(job)
            else:
                self.summaries[job.key] = entry.summary
        found = f"{len(self.summaries)} of {len(self.plan.jobs)} images are in the cache"
        self._report("scanned", None, found)

    def on_outcome(self, outcome: Outcome) -> None:
        """Record an outcome of the scheduler and report it."""
        if outcome.summary is not None:
            self.summaries[outcome.job.key] = outcome.summary
        self._report(outcome.kind, outcome.job, outcome.detail, outcome.seconds, outcome.peak_bytes)

    def images(self) -> ImageSet:
        """All images. Reports spills; raises ResourceError naming every image that must be rejected."""
        images = ImageSet(self.plan.jobs, self.summaries, self.architectures.architectures, self.cache)
        rejected: list[str] = []
        for job in self.plan.jobs:
            found = images.resources(job.key)
            rejected.extend(f"{job.label}: {reason}" for reason in violations(job, found))
            if text := spills(found):
                self._report("spills", job, text)
        if rejected:
            raise ResourceError(
                f"{len(rejected)} limits are exceeded:\n{_list(rejected)}",
                cause="the setting's blocks are too large for the arch",
                hint="change the setting in manifests/tuning/ARCH.yaml, or in the family's rules.py",
            )
        return images

    def _report(
        self, kind: EventKind, job: CompileJob | None, detail: str, seconds: float = 0.0, peak_bytes: int = 0
    ) -> None:
        if self.on_event is not None:
            event = CompileEvent(
                kind=kind,
                key=job.key if job else "",
                label=job.label if job else "",
                detail=detail,
                done=len(self.summaries),
                total=len(self.plan.jobs),
                seconds=seconds,
                peak_bytes=peak_bytes,
            )
            self.on_event(event)


def reproduction(plan: Plan, job: CompileJob, execution: ExecutionTarget | None = None) -> str:
    """The command that compiles one job alone, where it was compiled."""
    command = (
        f"./dev compile --job {shlex.quote(job.label)} --arch {job.target.arch} --profile {plan.profile}"
    )
    return f"{command} --executor {execution.runner.name}" if execution and execution.rootfs else command


def _compile_error(plan: Plan, failures: list[Outcome], command: CommandOf) -> CompileError:
    entries = [
        f"{failure.job.label}: {failure.detail}\n    {command(failure.job)}"
        + "".join(f"\n    | {line}" for line in failure.output.splitlines()[-5:])
        for failure in sorted(failures, key=lambda failure: failure.job.label)
    ]
    return CompileError(
        f"{len(failures)} of {len(plan.jobs)} compile jobs failed twice:\n{_list(entries)}",
        hint="the command below a job compiles it alone and shows everything it prints",
    )


def _list(entries: list[str]) -> str:
    shown = [f"  {entry}" for entry in entries[:_LISTED]]
    if len(entries) > _LISTED:
        shown.append(f"  ... and {len(entries) - _LISTED} more")
    return "\n".join(shown)
