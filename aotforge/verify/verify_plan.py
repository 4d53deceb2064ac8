"""Verification of a plan's images: cached, in parallel, and complete even when some of them fail."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aotforge.base.architectures import Architectures
from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.compile.compile_plan import compile_one
from aotforge.compile.model import KernelImage
from aotforge.errors import AotforgeError
from aotforge.plan.families import load_families
from aotforge.plan.model import CompileJob, JobKey, Plan, with_line_info
from aotforge.targets.backends import backend_of_arch, is_native, unexecutable
from aotforge.targets.installed import find_device
from aotforge.verify.interpreter.dispatch import uses_of
from aotforge.verify.pool import Pool, each
from aotforge.verify.report import VerifyReport
from aotforge.verify.verdict import ImageTask, OnEvent, Verdict, VerifyEvent
from aotforge.verify.verdict_store import VerdictStore
from aotforge.verify.verifier_digest import family_verifier_digest
from vgpu.emulator.debugger.locations import LineMap, read_lines
from vgpu.emulator.decoded import SourceMap
from vgpu.emulator.interpreter_library import build_library
from vgpu.emulator.listing import instruction_names
from vgpu.emulator.targets import emulated_target

TIMEOUT = 600.0
"""Seconds per image by default."""
Sources = Callable[[ImageTask], SourceMap]
Elsewhere = Callable[[Sequence[ImageTask]], Iterator[Verdict]]
_EXPLAINED = 4  # images compiled again for their source lines: a fault in one kernel is in all its images


def verify_images(
    plan: Plan,
    images: Mapping[JobKey, KernelImage],
    *,
    kernels_root: Path,
    architectures: Architectures | None = None,
    **options: Any,
) -> VerifyReport:
    """A verdict for every image of the plan; `options` as of `verify_tasks`.

    With `architectures`, faulty images are compiled again to name source lines. Raises UnknownNameError,
    RulesError, ToolchainError, CacheError; failed images do not: see `VerifyReport.require_passed`.
    """
    planned = {job.key: job for job in plan.jobs}

    def lines(task: ImageTask) -> SourceMap:
        assert architectures is not None
        with tempfile.TemporaryDirectory() as scratch:
            return source_map(
                planned[task.key], task.binary, kernels_root=kernels_root, architectures=architectures,
                    scratch=Path(scratch)
            )  # fmt: skip

    tasks = image_tasks(plan, images, kernels_root)
    sources = lines if architectures else None
    options |= {"kernels_root": kernels_root, "sources": sources}
    return verify_tasks(tasks, plan.pack, plan.archs, plan.profile, **options)


def source_map(
    job: CompileJob, binary: bytes, *, kernels_root: Path, architectures: Architectures, scratch: Path
) -> LineMap:
    """Source lines of a job's image: the job compiled again, with line info, in the empty folder `scratch`.

    Raises DecodeError for other machine code than the image's, CompileError, CacheError, ToolchainError.
    """
    job = with_line_info(job)
    image = compile_one(job, kernels_root=kernels_root, architectures=architectures, scratch=scratch)
    return read_lines(image.asm, image.binary, binary)


def load_interpreters(
    tasks: Iterable[ImageTask], cache: Path, on_stage: Callable[[str], None] | None = None
) -> dict[int, Path]:
    """Interpreters by lanes of a wave, compiled unless cached. Raises UnknownNameError, ToolchainError."""
    return {
        lanes: build_library(lanes, cache, "checks", names, on_stage)
        for lanes, names in instructions_by_lanes(tasks).items()
    }


def instructions_by_lanes(tasks: Iterable[ImageTask]) -> dict[int, list[str]]:
    """Names of the instructions of all images by lanes of a wave, sorted."""
    texts: dict[int, list[str]] = {}
    for task in tasks:
        texts.setdefault(emulated_target(task.arch).lanes, []).append(task.asm)
    return {lanes: sorted(instruction_names(found)) for lanes, found in sorted(texts.items())}


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
    on_stage: Callable[[str], None] | None = None,
    timeout: float = TIMEOUT,
    device: bool = False,
    shared: SharedObjects = NOT_SHARED,
    elsewhere: Elsewhere | None = None,
    sources: Sources | None = None,
) -> VerifyReport:
    """A verdict for every task. Passed ones are kept in the cache, and not executed again.

    `timeout`: seconds per image; `shared`: may have verdicts; `device`: execute images of archs without a
    virtual GPU on a GPU here, else they get no verdict; `elsewhere`: passed verdicts of other machines on
    emulated images; `sources` makes an image's source map.
    """
    store, by_key = VerdictStore(cache, shared), {task.key: task for task in tasks}
    verdicts: dict[JobKey, Verdict] = {}

    def done(verdict: Verdict) -> None:
        verdicts[verdict.key] = verdict
        if on_event:
            on_event(VerifyEvent(verdict=verdict, done=len(verdicts), total=len(tasks)))

    missing = []
    store.expect(tasks)
    for task in tasks:
        if unavailable := _unavailable(task, device=device):
            done(unavailable)
        elif stored := store.load(task):
            done(stored)
        else:
            missing.append(task)
    executed_by = {task.key: backend_of_arch(task.arch).executed_by for task in missing}
    emulated = [task for task in missing if executed_by[task.key] == "virtual GPU"]
    began = time.monotonic()
    for verdict in elsewhere(emulated) if elsewhere and emulated else ():
        store.store(by_key[verdict.key], verdict)
        done(verdict)
    missing, emulated = ([task for task in some if task.key not in verdicts] for some in (missing, emulated))
    libraries = load_interpreters(emulated, cache, on_stage)
    if missing and on_stage:
        on_stage(f"executing {len(missing)} images of {pack}")
    if not elsewhere:
        began = time.monotonic()  # compiling is no part of the speed
    own: dict[str, Any] = {"kernels_root": kernels_root, "cache": cache, "timeout": timeout}
    for verdict in _checked(missing, Pool(**own, libraries=libraries), sources, jobs) if missing else ():
        # another machine's device is another one
        if verdict.outcome == "passed" and executed_by[verdict.key] != "device":
            store.store(by_key[verdict.key], verdict)
        done(verdict)
    found, seconds = tuple(verdicts[task.key] for task in tasks), time.monotonic() - began
    return VerifyReport(pack=pack, archs=archs, profile=profile, verdicts=found, seconds=seconds)


def _unavailable(task: ImageTask, *, device: bool) -> Verdict | None:
    """The verdict on an image whose arch nothing here executes; None when something does."""
    reason = unexecutable(task.arch)
    if not reason:
        return None
    if is_native(task.arch) or not device:
        hint = "" if is_native(task.arch) else "; --device does, on a GPU"
        return Verdict.not_executed(task, f"{reason}{hint}")
    found, reason = find_device(task.arch)
    missing = f"no GPU of {task.arch} here: {reason}"
    return None if found else Verdict.not_executed(task, missing, skipped=True)


def _checked(
    tasks: Sequence[ImageTask], pool: Pool, sources: Sources | None, jobs: int | None
) -> Iterator[Verdict]:
    """Verdicts in the order in which they are ready."""
    explained = threading.Semaphore(_EXPLAINED)

    def one(task: ImageTask) -> Verdict:
        verdict = pool.check(task)
        if verdict.faults and sources and explained.acquire(blocking=False):
            return _explained(task, verdict, pool, sources)
        return verdict

    return each(pool, one, tasks, jobs)


def _explained(task: ImageTask, verdict: Verdict, pool: Pool, sources: Sources) -> Verdict:
    """The verdict with source lines of its faults, or why there are none. It stays a failure."""
    reason = "the second execution had other faults"
    try:
        again = pool.check(replace(task, source=sources(task)))
        if again.faults == verdict.faults:
            return again
    except AotforgeError as error:
        reason = error.what
    return replace(verdict, failure=f"{verdict.failure}\n(no source lines: {reason})")


def image_tasks(plan: Plan, images: Mapping[JobKey, KernelImage], kernels_root: Path) -> list[ImageTask]:
    """Every job's image with all of its uses, in the plan's order. Raises RulesError, CacheError."""
    folders = {loaded.family.name: loaded.folder for loaded in load_families(kernels_root)}
    uses = uses_of(plan, {job.key: job.target.arch for job in plan.jobs})
    families = {job.family for job in plan.jobs}
    natively = any(map(is_native, plan.archs))
    digests = {
        family: family_verifier_digest(kernels_root / folders[family], natively=natively)
        for family in families
    }
    return [
        ImageTask(
            key=job.key,
            label=job.label,
            arch=job.target.arch,
            digest=image.digest,
            binary=image.binary,
            asm=image.asm,
            resources=image.resources,
            folder=folders[job.family],
            verifier_digest=digests[job.family],
            uses=uses[job.key],
        )
        for job in plan.jobs
        for image in [images[job.key]]
    ]
