"""Every image of a plan executed and judged: cached, in parallel, all of them whatever happens to some."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from aotforge.compile.values import KernelImage
from aotforge.emulator.chips import chip_named
from aotforge.emulator.library import load_library
from aotforge.plan import load_families
from aotforge.plan.values import JobKey, Plan
from aotforge.verify.dispatch import uses_of
from aotforge.verify.pool import Pool
from aotforge.verify.store import load_verdict, store_verdict, verdict_key
from aotforge.verify.tools import tools_digest
from aotforge.verify.values import ImageTask, OnEvent, Verdict, VerifyEvent, VerifyReport

TIMEOUT = 600.0
"""Seconds that one image may take."""


def verify_images(
    plan: Plan,
    images: Mapping[JobKey, KernelImage],
    *,
    kernels_root: Path,
    cache: Path,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
    timeout: float = TIMEOUT,
) -> VerifyReport:
    """A verdict for every image of the plan. Passed ones are kept below `cache` and not executed again.

    `jobs`: processes (default: one per CPU); `on_event` is called in this thread. Raises UnknownNameError for a chip
    that is not emulated, RulesError for cases that do not load, ToolchainError without a C compiler or Triton,
    CacheError. Failed images do not raise: see `require_passed`.
    """
    return verify_tasks(
        _tasks(plan, images, kernels_root), plan.pack, plan.archs, plan.profile,
        kernels_root=kernels_root, cache=cache, jobs=jobs, on_event=on_event, timeout=timeout,
    )  # fmt: skip


def verify_tasks(
    tasks: Sequence[ImageTask],
    pack: str,
    archs: tuple[str, ...],
    profile: str,
    *,
    kernels_root: Path,
    cache: Path,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
    timeout: float = TIMEOUT,
) -> VerifyReport:
    """A verdict for every task, as `verify_images`. Keys of tasks are different."""
    began = time.monotonic()
    for arch in archs:  # once, before the workers race for it
        load_library(chip_named(arch).lanes, cache)
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
    for verdict in _judged(missing, kernels_root, cache, jobs, timeout):
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
    tasks: Sequence[ImageTask], kernels_root: Path, cache: Path, jobs: int | None, timeout: float
) -> Iterator[Verdict]:
    """Verdicts as they come, from as many processes as the machine has CPUs."""
    if not tasks:
        return
    pool = Pool(kernels_root=kernels_root, cache=cache, timeout=timeout)
    threads = ThreadPoolExecutor(min(jobs or len(os.sched_getaffinity(0)), len(tasks)))
    try:
        futures: list[Future[Verdict]] = [threads.submit(pool.judge, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.close()
        threads.shutdown(cancel_futures=True)


def _tasks(plan: Plan, images: Mapping[JobKey, KernelImage], kernels_root: Path) -> list[ImageTask]:
    folders = {loaded.family.name: loaded.folder for loaded in load_families(kernels_root)}
    uses = uses_of(plan, {job.key: job.chip.arch for job in plan.jobs})
    tools = {
        folder: tools_digest(kernels_root / folder) for folder in {folders[job.family] for job in plan.jobs}
    }
    tasks = []
    for job in plan.jobs:
        image = images[job.key]
        tasks.append(
            ImageTask(
                key=job.key,
                label=job.label,
                arch=job.chip.arch,
                digest=image.digest,
                hsaco=image.hsaco,
                asm=image.asm,
                resources=image.resources,
                folder=folders[job.family],
                tools=tools[folders[job.family]],
                uses=uses[job.key],
            )
        )
    return tasks
