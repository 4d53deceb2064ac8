"""Every image of a plan executed and judged: cached, in parallel, all of them whatever happens to some."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import Architectures
from aotforge.compile.model import KernelImage
from aotforge.errors import AotforgeError
from aotforge.plan.families import load_families
from aotforge.plan.model import JobKey, Plan
from aotforge.verify.dispatch import uses_of
from aotforge.verify.pool import Pool
from aotforge.verify.source_map import source_map
from aotforge.verify.verdict import ImageTask, OnEvent, Verdict, VerifyEvent, VerifyReport
from aotforge.verify.verdict_store import load_verdict, store_verdict, verdict_key
from aotforge.verify.verifier_digest import family_verifier_digest
from aotforge.virtual_gpu.emulator.decoded import SourceMap
from aotforge.virtual_gpu.emulator.generate import Variant
from aotforge.virtual_gpu.emulator.interpreter_library import load_library
from aotforge.virtual_gpu.emulator.targets import emulated_target

TIMEOUT = 600.0
"""Seconds that one image may take."""
Sources = Callable[[ImageTask], SourceMap]
_EXPLAINED = 4  # images compiled again for their source lines: a fault in one kernel is in all its images


def verify_images(
    plan: Plan,
    images: Mapping[JobKey, KernelImage],
    *,
    kernels_root: Path,
    cache: Path,
    architectures: Architectures | None = None,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
    timeout: float = TIMEOUT,
) -> VerifyReport:
    """A verdict for every image of the plan. Passed ones are kept below `cache` and not executed again.

    `architectures`: the chips' figures, with which images that the virtual GPU stops are compiled again to name source lines;
    `jobs`: processes (default: one per CPU); `on_event` is called in this thread. Raises UnknownNameError for a chip
    that is not emulated, RulesError for cases that do not load, ToolchainError without a C compiler or Triton,
    CacheError. Failed images do not raise: see `require_passed`.
    """
    return verify_tasks(
        image_tasks(plan, images, kernels_root), plan.pack, plan.archs, plan.profile,
        kernels_root=kernels_root, cache=cache, sources=_sources(plan, kernels_root, architectures), jobs=jobs,
        on_event=on_event, timeout=timeout,
    )  # fmt: skip


def load_interpreters(archs: Iterable[str], cache: Path) -> None:
    """Compile what executes images of these chips unless the cache has it. Raises UnknownNameError, ToolchainError, CacheError."""
    checks: Variant = "checks"
    wanted = [(lanes, cache, checks) for lanes in sorted({emulated_target(arch).lanes for arch in archs})]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:  # each waits for a compiler
        list(threads.map(lambda one: load_library(*one), wanted))


def verify_tasks(
    tasks: Sequence[ImageTask],
    pack: str,
    archs: tuple[str, ...],
    profile: str,
    *,
    kernels_root: Path,
    cache: Path,
    sources: Sources | None = None,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
    timeout: float = TIMEOUT,
) -> VerifyReport:
    """A verdict for every task, as `verify_images`. Keys of tasks are different; `sources` makes an image's source map."""
    began = time.monotonic()
    load_interpreters(archs, cache)  # once, before the workers race for them
    keys = {task.key: verdict_key(task) for task in tasks}
    verdicts: dict[JobKey, Verdict] = {}

    def done(verdict: Verdict) -> None:
        verdicts[verdict.key] = verdict
        if on_event:
            on_event(VerifyEvent(verdict=verdict, done=len(verdicts), total=len(tasks)))

    missing = []
    for task in tasks:
        stored = load_verdict(cache, keys[task.key], task)
        if stored:
            done(stored)
        else:
            missing.append(task)
    pool = Pool(kernels_root=kernels_root, cache=cache, timeout=timeout) if missing else None
    for verdict in _judged(missing, pool, sources, jobs) if pool else ():
        if verdict.outcome == "passed":
            store_verdict(cache, keys[verdict.key], verdict)
        done(verdict)
    return VerifyReport(
        pack=pack,
        archs=archs,
        profile=profile,
        verdicts=tuple(verdicts[task.key] for task in tasks),
        seconds=time.monotonic() - began,
    )


def _judged(
    tasks: Sequence[ImageTask], pool: Pool, sources: Sources | None, jobs: int | None
) -> Iterator[Verdict]:
    """Verdicts as they come, from as many processes as the machine has CPUs."""
    explained = threading.Semaphore(_EXPLAINED)
    threads = ThreadPoolExecutor(min(jobs or len(os.sched_getaffinity(0)), len(tasks)))

    def one(task: ImageTask) -> Verdict:
        verdict = pool.check(task)
        if verdict.faults and sources and explained.acquire(blocking=False):
            return _explained(task, verdict, pool, sources)
        return verdict

    try:
        futures: list[Future[Verdict]] = [threads.submit(one, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.close()
        threads.shutdown(cancel_futures=True)


def _explained(task: ImageTask, verdict: Verdict, pool: Pool, sources: Sources) -> Verdict:
    """The verdict once more, with the source lines of what was stopped; as it is, and why, when they cannot be known.

    An image that was stopped has failed, whatever becomes of it the second time.
    """
    try:
        again = pool.check(replace(task, source=sources(task)))
    except AotforgeError as error:
        return replace(verdict, failure=f"{verdict.failure}\n(no source lines: {error.what})")
    if again.faults == verdict.faults:
        return again
    return replace(
        verdict, failure=f"{verdict.failure}\n(no source lines: a second execution went otherwise)"
    )


def _sources(plan: Plan, kernels_root: Path, architectures: Architectures | None) -> Sources | None:
    if architectures is None:
        return None
    known, planned = architectures, {job.key: job for job in plan.jobs}

    def lines(task: ImageTask) -> SourceMap:
        with tempfile.TemporaryDirectory() as scratch:
            return source_map(
                planned[task.key], task.hsaco, kernels_root=kernels_root, architectures=known, scratch=Path(scratch)
            )  # fmt: skip

    return lines


def image_tasks(plan: Plan, images: Mapping[JobKey, KernelImage], kernels_root: Path) -> list[ImageTask]:
    """What there is to judge: every job's image with all calls that lead to it, in the plan's order. Raises RulesError, CacheError."""
    folders = {loaded.family.name: loaded.folder for loaded in load_families(kernels_root)}
    uses = uses_of(plan, {job.key: job.target.arch for job in plan.jobs})
    tools = {
        folder: family_verifier_digest(kernels_root / folder)
        for folder in {folders[job.family] for job in plan.jobs}
    }
    tasks = []
    for job in plan.jobs:
        image = images[job.key]
        tasks.append(
            ImageTask(
                key=job.key,
                label=job.label,
                arch=job.target.arch,
                digest=image.digest,
                hsaco=image.hsaco,
                asm=image.asm,
                resources=image.resources,
                folder=folders[job.family],
                verifier_digest=tools[folders[job.family]],
                uses=uses[job.key],
            )
        )
    return tasks
