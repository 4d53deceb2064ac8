"""The compile room's door: a plan in, verified images out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.architectures import Architectures
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import Entry, EntryError, Summary
from aotforge.compile.image_set import ImageSet, image_of
from aotforge.compile.model import CompileEvent, EventKind, KernelImage, OnEvent
from aotforge.compile.resources import resources, spills, violations
from aotforge.compile.scheduler import Failure, Outcome, Scheduler
from aotforge.compile.worker_limits import Limits, worker_count
from aotforge.errors import CacheError, CompileError, ResourceError, UnknownNameError, suggest
from aotforge.plan.model import CompileJob, JobKey, Plan
from aotforge.toolchain.allocator import build_allocator
from aotforge.toolchain.triton import Toolchain, read_toolchain

if TYPE_CHECKING:
    from aotforge.compile.remote import Away
    from aotforge.sandbox.executors.step import ExecutionTarget

_LISTED = 20


def compile_plan(
    plan: Plan,
    *,
    kernels_root: Path,
    architectures: Architectures,
    cache: Cache,
    jobs: int | None = None,
    limits: Limits | None = None,
    on_event: OnEvent | None = None,
    execution: ExecutionTarget | None = None,
) -> ImageSet:
    """Every image of the plan, from the cache or compiled into it: here, or at `execution`. `jobs` bounds the workers; memory and CPUs do too.

    Raises CompileError when jobs failed twice (all others are finished first), ResourceError for spills and LDS that must be
    rejected, CacheError, ToolchainError; with an execution target LimitError and ExecutorError. Finished images stay in the cache whatever happens.
    """
    build = _Build(plan, architectures, cache, on_event or _ignore)
    build.scan()
    if build.missing:
        scheduler = _scheduler(
            build.missing,
            cache=cache,
            kernels_root=kernels_root,
            jobs=jobs,
            limits=limits or Limits(),
            execution=execution,
            report=build.outcome,
        )
        scheduler.run()
        if scheduler.failures:
            raise _compile_error(plan, scheduler.failures, execution)
    build.check_resources()
    return ImageSet(plan.jobs, build.summaries, architectures.architectures, cache)


def toolchain_of(execution: ExecutionTarget | None, *, cache: Path) -> Callable[[str], Toolchain]:
    """For `plan_project`: reads the compiler of this machine, or of the execution target's rootfs."""
    if execution is None or execution.rootfs is None:
        return read_toolchain
    from aotforge.compile.remote import rootfs_toolchain  # noqa: PLC0415 - as above

    return lambda pinned: rootfs_toolchain(execution, pinned, cache=cache)


def stored_images(plan: Plan, *, architectures: Architectures, cache: Cache) -> ImageSet:
    """Every image of the plan, from the cache alone: nothing is compiled, whatever is missing.

    Raises CacheError naming images that are missing or damaged, ResourceError as `compile_plan`.
    """
    build = _Build(plan, architectures, cache, _ignore)
    build.scan()
    if build.missing:
        raise CacheError(
            f"{len(build.missing)} of {len(plan.jobs)} images are missing or damaged:\n"
            f"{_list([job.label for job in build.missing])}",
            hint="build them",
        )
    build.check_resources()
    return ImageSet(plan.jobs, build.summaries, architectures.architectures, cache)


def compile_one(
    job: CompileJob,
    *,
    kernels_root: Path,
    architectures: Architectures,
    scratch: Path,
    limits: Limits | None = None,
    execution: ExecutionTarget | None = None,
) -> KernelImage:
    """One job in a fresh worker, past the cache: what a failure's reproduction command runs. `scratch` is an empty folder.

    Raises CompileError with everything that the worker printed, CacheError, ToolchainError; with an execution target LimitError and ExecutorError.
    """
    done: list[Entry] = []
    with Cache(scratch) as cache:
        scheduler = _scheduler(
            [job],
            cache=cache,
            kernels_root=kernels_root,
            jobs=1,
            limits=limits or Limits(),
            execution=execution,
            report=lambda _: None,
        )
        scheduler.run()
        entry = None if scheduler.failures else cache.load(job.key)
        if entry is not None:
            done.append(entry)
    if not done:
        failure = scheduler.failures[0]
        raise CompileError(f"{job.label}: {failure.reason}\n{failure.output}".rstrip())
    return image_of(done[0], architectures.architectures[job.target.arch])


def _scheduler(
    missing: list[CompileJob],
    *,
    cache: Cache,
    kernels_root: Path,
    jobs: int | None,
    limits: Limits,
    execution: ExecutionTarget | None,
    report: Callable[[Outcome], None],
) -> Scheduler | Away:
    """What compiles: workers of this process, or those in the execution target's rootfs."""
    if execution is not None and execution.rootfs is not None:
        # imported where used: a build on this machine needs no executors
        from aotforge.compile.remote import Away  # noqa: PLC0415

        return Away(
            missing,
            cache=cache,
            kernels_root=kernels_root,
            wanted=jobs,
            limits=limits,
            execution=execution,
            report=report,
        )
    return Scheduler(
        missing,
        cache=cache,
        allocator=build_allocator(cache.folder),
        kernels_root=kernels_root,
        count=worker_count(len(missing), limits, wanted=jobs),
        limits=limits,
        report=report,
    )


def find_job(plan: Plan, name: str) -> CompileJob:
    """A job by label, key, or at least eight digits of the key. Raises UnknownNameError."""
    for job in plan.jobs:
        if name == job.label or (len(name) >= 8 and job.key.startswith(name)):
            return job
    raise UnknownNameError(f"unknown job {name}", hint=suggest(name, (job.label for job in plan.jobs)))


class _Build:
    """What is known about a plan's images while it is worked on."""

    def __init__(self, plan: Plan, architectures: Architectures, cache: Cache, on_event: OnEvent) -> None:
        self._plan = plan
        self._chips = architectures.architectures
        self._cache = cache
        self._on_event = on_event
        self.summaries: dict[JobKey, Summary] = {}
        self.missing: list[CompileJob] = []

    def scan(self) -> None:
        """Verify what the cache has."""
        for job in self._plan.jobs:
            try:
                entry = self._cache.load(job.key)
            except EntryError as error:
                entry = None
                self._tell("damaged", job, f"cache entry {error}; it is compiled again")
            if entry is None:
                self.missing.append(job)
            else:
                self.summaries[job.key] = entry.summary
        self._tell(
            "scanned", None, f"{len(self.summaries)} of {len(self._plan.jobs)} images are in the cache"
        )

    def outcome(self, outcome: Outcome) -> None:
        """News from the scheduler."""
        if outcome.summary is not None:
            self.summaries[outcome.job.key] = outcome.summary
        kinds: dict[str, EventKind] = {
            "compiled": "compiled",
            "shared": "shared",
            "retry": "retry",
            "failed": "failed",
        }
        self._tell(kinds[outcome.kind], outcome.job, outcome.detail, outcome.seconds, outcome.peak_bytes)

    def check_resources(self) -> None:
        """Report spills; raise ResourceError with every image that must be rejected."""
        rejected: list[str] = []
        for job in self._plan.jobs:
            found = resources(self.summaries[job.key].stats, self._chips[job.target.arch])
            reasons = violations(job, found)
            rejected.extend(f"{job.label}: {reason}" for reason in reasons)
            if text := spills(found):
                self._tell("spills", job, text)
        if rejected:
            raise ResourceError(
                f"{len(rejected)} limits are exceeded:\n{_list(rejected)}",
                cause="the setting's blocks are too large for the chip",
                hint="change the setting in the family's rules.py, or let the rules report spills instead",
            )

    def _tell(
        self, kind: EventKind, job: CompileJob | None, detail: str, seconds: float = 0.0, peak_bytes: int = 0
    ) -> None:
        self._on_event(
            CompileEvent(
                kind=kind,
                key=job.key if job else "",
                label=job.label if job else "",
                detail=detail,
                done=len(self.summaries),
                total=len(self._plan.jobs),
                seconds=seconds,
                peak_bytes=peak_bytes,
            )
        )


def reproduction(plan: Plan, job: CompileJob, execution: ExecutionTarget | None = None) -> str:
    """The command that compiles one job alone, where it was compiled."""
    command = f"./dev compile.job {shlex.quote(job.label)} --arch {job.target.arch} --profile {plan.profile}"
    return f"{command} --executor {execution.executor.name}" if execution and execution.rootfs else command


def _compile_error(plan: Plan, failures: list[Failure], execution: ExecutionTarget | None) -> CompileError:
    entries = [
        f"{failure.job.label}: {failure.reason}\n    {reproduction(plan, failure.job, execution)}"
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


_ignore: Callable[[CompileEvent], None] = lambda event: None  # noqa: E731
