"""Image packs alone, as the source route (CMakeLists.txt) wants them: compiled, verified, packed, laid out as below `aotriton.images`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.files import output_lock, staged_folder
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.pool import WorkerLimits
from aotforge.library.interface import check_interfaces
from aotforge.pack.model import ImagePack
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.pipeline.build_release import by_pack
from aotforge.pipeline.display import BuildObserver
from aotforge.plan.model import Plan
from aotforge.plan.planner import plan_project
from aotforge.release.release_manifest import load_release_manifest


@dataclass(frozen=True, kw_only=True)
class ImagesRequest:
    """What to build and where: a folder `output`/<pack> per pack of `archs`, and nothing else in `output`.

    `minutes` bounds the compilation of one kernel, 0 is no bound; `jobs` bounds worker processes. Without `verify` no image is executed.
    """

    root: Path
    archs: tuple[str, ...]
    profile: str | None
    output: Path
    cache: Path
    jobs: int | None
    minutes: float
    verify: bool = True


@dataclass(frozen=True, kw_only=True)
class ImagesReport:
    """The plans whose packs lie in the output now; `changed` is False when exactly these lay there before and nothing was written."""

    plans: tuple[Plan, ...]
    output: Path
    changed: bool


def build_images(
    request: ImagesRequest,
    *,
    observer: BuildObserver,
) -> ImagesReport:
    """The packs that `invoke build` puts into its image tarballs, byte for byte, without tarballs and without the library.

    Raises AotforgeError; what lay in the output stays until all packs are whole.
    """
    plans = tuple(
        plan_project(request.root, archs=archs, profile=request.profile)
        for archs in by_pack(request.root, request.archs)
    )
    check_interfaces(request.root, plans)
    with output_lock(request.output):
        with Cache(request.cache) as cache:
            packs = [_pack(plan, request, cache, observer=observer) for plan in plans]
        changed = not _same(packs, request.output)
        if changed:
            with staged_folder(request.output) as staged:
                for pack in packs:
                    (staged / pack.name).mkdir()
                    for name, data in pack.files.items():
                        (staged / pack.name / name).write_bytes(data)
    return ImagesReport(plans=plans, output=request.output, changed=changed)


def _pack(
    plan: Plan,
    request: ImagesRequest,
    cache: Cache,
    *,
    observer: BuildObserver,
) -> ImagePack:
    architectures = load_architectures(request.root / "manifests")
    kernels = request.root / "kernels"
    observer.stage(f"{len(plan.jobs)} images of {plan.pack}")
    images = compile_plan(
        plan,
        kernels_root=kernels,
        architectures=architectures,
        cache=cache,
        jobs=request.jobs,
        limits=WorkerLimits(job_seconds=request.minutes * 60 or math.inf),
        on_event=observer.event,
    )
    if request.verify:
        # the emulator takes longer to import than an unverified build with nothing to do needs
        from aotforge.verify.verify_plan import verify_images  # noqa: PLC0415

        observer.stage(f"verifying {len(plan.jobs)} images of {plan.pack}")
        verify_images(
            plan,
            images,
            kernels_root=kernels,
            cache=request.cache,
            architectures=architectures,
            jobs=request.jobs,
            on_event=observer.verdict,
        ).require_passed()
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    loaded = list(images.values())
    pack = write_pack(plan, loaded, release=manifest.name, compressor=manifest.pack_compressor())
    verify_pack(open_files(pack), plan, loaded)
    return pack


def _same(packs: list[ImagePack], output: Path) -> bool:
    """Whether `output` holds these packs, byte for byte, and nothing else."""
    wanted = {f"{pack.name}/{name}": data for pack in packs for name, data in pack.files.items()}
    try:
        there = {p.relative_to(output).as_posix(): p for p in output.rglob("*") if not p.is_dir()}
        return there.keys() == wanted.keys() and all(
            there[name].read_bytes() == data for name, data in wanted.items()
        )
    except OSError:
        return False


def report_text(report: ImagesReport) -> str:
    """One line for people."""
    count = sum(len(plan.jobs) for plan in report.plans)
    state = "are in" if report.changed else "were in already:"
    return f"{count} images of {', '.join(plan.pack for plan in report.plans)} {state} {report.output}"
