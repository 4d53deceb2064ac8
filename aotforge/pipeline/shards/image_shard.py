"""The images of one shard, compiled, verified and written as a part."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.base.files import write_atomic
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import VERSION, EntryError, encode
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.compile.pool import WorkerLimits
from aotforge.errors import CacheError
from aotforge.library.interface import check_interfaces
from aotforge.pipeline.build_release import BuildRequest, judges_of, require_virtual_gpus
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.shards import shard_file as archive
from aotforge.pipeline.shards.identity import identity
from aotforge.pipeline.shards.shard_file import Part, PartFile
from aotforge.pipeline.shards.split import Shard, split
from aotforge.pipeline.shards.targets import placed
from aotforge.plan.model import CompileJob, Plan
from aotforge.sandbox.executors.step import ExecutionTarget

KIND = "images"


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """A part that was written: what it holds in words, and its file."""

    what: str
    path: Path
    size: int


def entry_name(key: str) -> str:
    """Where a cache entry lies, below the cache folder and in a part."""
    return f"images-{VERSION}/{key[:2]}/{key}"


def part_name(plan: Plan, shard: Shard) -> str:
    """A shard's file name; what counts is what the file says of itself."""
    return f"{plan.pack}-{plan.profile}-{shard.number}of{shard.count}{archive.SUFFIX}"


def build_shard(
    request: BuildRequest,
    shard: Shard,
    *,
    observer: BuildObserver,
) -> tuple[PartReport, ...]:
    """Compile and verify one shard of every pack of the request's chips; one file each in `request.output`, whole or not at all.

    Raises what `aotforge.pipeline.build_release.build` raises for images.
    """
    executions, plans = placed(request, observer=observer)
    check_interfaces(request.root, plans)
    if request.verify:
        require_virtual_gpus(request, plans)
    folder = request.output or request.root / "releases" / "parts"
    reports = []
    with Cache(request.cache) as cache:
        for plan in plans:
            made = replace(plan, jobs=split(plan.jobs, shard.count)[shard.number - 1])
            observer.stage(f"shard {shard} of {plan.pack}: {len(made.jobs)} images")
            images = _images(made, request, cache, observer, executions.kernels)
            files = {entry_name(job.key): PartFile(content=_entry(cache, job)) for job in made.jobs}
            if request.verify:
                files |= _verdicts(made, images, request, observer)
            said = about(plan, judges_of(request, [plan]), shard, made.jobs, images)
            data = archive.encode(Part(about=said, files=files))
            path = folder / part_name(plan, shard)
            write_atomic(path, data)
            what = f"shard {shard} of {plan.pack}, profile {plan.profile}: {len(made.jobs)} of {len(plan.jobs)} images"
            reports.append(PartReport(what=what, path=path, size=len(data)))
    return tuple(reports)


def about(
    plan: Plan, judges: str, shard: Shard, jobs: tuple[CompileJob, ...], images: ImageSet
) -> dict[str, Any]:
    """What a shard says of itself: which shard of which build, and the images that it holds."""
    return {
        "kind": KIND,
        "pack": plan.pack,
        "archs": list(plan.archs),
        "shard": {"number": shard.number, "count": shard.count},
        "identity": identity(plan, judges),
        "jobs": [{"key": j.key, "label": j.label, "digest": images.digest(j.key)} for j in jobs],
    }


def _images(
    plan: Plan,
    request: BuildRequest,
    cache: Cache,
    observer: BuildObserver,
    execution: ExecutionTarget | None,
) -> ImageSet:
    return compile_plan(
        plan,
        kernels_root=request.root / "kernels",
        architectures=load_architectures(request.root / "manifests"),
        cache=cache,
        jobs=request.jobs,
        limits=WorkerLimits(),
        on_event=observer.event,
        execution=execution,
    )


def _entry(cache: Cache, job: CompileJob) -> bytes:
    try:
        entry = cache.load(job.key)
    except EntryError as error:
        raise CacheError(f"image of {job.label}: {error}", hint="build again: it is compiled anew") from error
    if entry is None:
        raise CacheError(
            f"image of {job.label} is gone from the cache", hint="build again: it is compiled anew"
        )
    return encode(entry)


def _verdicts(
    plan: Plan, images: ImageSet, request: BuildRequest, observer: BuildObserver
) -> Mapping[str, PartFile]:
    """Files of the verdict store, by their names below the cache folder."""
    from aotforge.pipeline.shards.verdict_files import keep_verdicts  # noqa: PLC0415 - heavy, and of no use without --verify
    from aotforge.verify.verify_plan import verify_images  # noqa: PLC0415

    kernels = request.root / "kernels"
    report = verify_images(
        plan,
        images,
        kernels_root=kernels,
        cache=request.cache,
        architectures=load_architectures(request.root / "manifests"),
        jobs=request.jobs,
        on_event=observer.verdict,
    )
    report.require_passed()
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch)
        verdicts = {verdict.key: verdict for verdict in report.verdicts}
        keep_verdicts(plan, images, verdicts, kernels_root=kernels, cache=store)
        return {
            path.relative_to(store).as_posix(): PartFile(content=path.read_bytes())
            for path in store.rglob("*")
            if path.is_file()
        }
