"""The one path from rules to image packs: plan, compile, verify, pack."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.base.architectures import Architecture, Architectures
from aotforge.base.files import output_lock, staged_folder
from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import KIND
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.compile.model import KernelImage
from aotforge.compile.pool import WorkerLimits
from aotforge.errors import PackError, UsageError, VerifyError
from aotforge.library.interface import check_interfaces
from aotforge.pack.model import SIGNATURE_FILE
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.requests import CachedRequest, ImagesRequest, PartRequest
from aotforge.pipeline.shared_cache import cluster_of, shared_objects
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import JobKey, Plan
from aotforge.plan.planner import plan_project, select_archs
from aotforge.plan.selection import Only
from aotforge.release.model import ImageRecord, PackInput, ReleaseManifest, load_release_manifest
from aotforge.run.step import ExecutionTarget
from aotforge.targets.backends import BACKENDS, is_native, unexecutable
from aotforge.toolchain.triton import Toolchain, read_toolchain
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.verify.verifier_digest import verifier_digest

if TYPE_CHECKING:
    from aotforge.pipeline.cluster import Cluster
    from aotforge.verify.report import VerifyReport  # numpy: 80 ms of a no-op build


def by_pack(architectures: Architectures, archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Archs grouped by their image packs, in the packs' order. Raises ManifestError, UnknownNameError."""
    packs: dict[str, list[str]] = {}
    for arch in archs:
        packs.setdefault(select_archs(architectures, [arch])[0], []).append(arch)
    return tuple(tuple(packs[pack]) for pack in sorted(packs))


def make_plans(
    request: ImagesRequest,
    *,
    only: Only | None = None,
    toolchain: Callable[[str], Toolchain] = read_toolchain,
) -> tuple[Plan, ...]:
    """One plan per image pack, in the packs' order. Raises UsageError, and as `plan_project`."""
    if not request.archs:
        raise UsageError("--arch is missing", hint="--arch gfx908, or several: --arch gfx908,MI300X")
    return tuple(
        plan_project(request.checkout, archs=archs, profile=request.profile, only=only, toolchain=toolchain)
        for archs in by_pack(request.checkout.architectures, request.archs)
    )


def planned_architectures(known: Architectures, plans: Sequence[Plan]) -> dict[str, Architecture]:
    """Properties of the plans' archs, by arch."""
    return {arch: known.architectures[arch] for plan in plans for arch in plan.archs}


def plans_verifier_digest(checkout: Checkout, plans: Sequence[Plan]) -> str:
    """SHA-256 of what decides the verdicts on the plans' images: virtual GPU, cases, references."""
    wanted = {job.family for plan in plans for job in plan.jobs}
    # a family's name need not be its folder's
    folders = {loaded.folder for loaded in checkout.families if loaded.family.name in wanted}
    return verifier_digest(
        checkout.kernels, folders, natively=any(is_native(arch) for plan in plans for arch in plan.archs)
    )


def require_executors(plans: Sequence[Plan], cache: Path, *, unexecuted: bool = False) -> None:
    """Raises VerifyError where images of an arch cannot be executed here, unless `unexecuted`."""
    from vgpu.emulator.interpreter_library import build_library  # noqa: PLC0415 - 60 ms of a no-op build
    from vgpu.emulator.targets import emulated_targets  # noqa: PLC0415 - as above

    archs = [arch for plan in plans for arch in plan.archs]
    emulated = emulated_targets()
    reasons = {
        arch: unexecutable(arch) if is_native(arch) else f"no virtual GPU executes {arch}"
        for arch in archs
        if arch not in emulated
    }
    unknown = {arch: reason for arch, reason in reasons.items() if reason and not unexecuted}
    if unknown:
        raise VerifyError(
            f"images for {', '.join(unknown)} cannot be verified: "
            + "; ".join(dict.fromkeys(unknown.values())),
            cause=f"the emulator implements {', '.join(emulated)}",
            hint="omit the arch, or make a development build: --unexecuted, which names it, or --no-verify",
        )
    for lanes in sorted({emulated[arch].lanes for arch in archs if arch in emulated}):
        build_library(lanes, cache, "checks", ())


@dataclass(frozen=True, kw_only=True)
class ImageBuilder:
    """Compiles and verifies the images of plans. `execution` is where compilers run, None for this machine.

    `device`: on a GPU; `shared`: places that may have images and verdicts; `cluster` runs jobs.
    """

    request: ImagesRequest
    observer: BuildObserver
    cache: Cache
    execution: ExecutionTarget | None = None
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    device: bool = False
    shared: SharedObjects = NOT_SHARED
    cluster: Cluster | None = None

    def compile(self, plan: Plan) -> ImageSet:
        """Every image of the plan, compiled where the cache lacks it. Raises what `compile_plan` raises."""
        self.observer.stage(f"{len(plan.jobs)} images of {plan.pack}")
        return compile_plan(
            plan,
            kernels_root=self.request.kernels,
            architectures=self.request.checkout.architectures,
            cache=self.cache,
            jobs=self.request.jobs,
            limits=self.limits,
            on_event=self.observer.event,
            execution=self.execution,
            runner=self.cluster.scheduler if self.cluster else None,
        )

    def verify(self, plan: Plan, images: ImageSet) -> VerifyReport:
        """A verdict on every image. Raises what `verify_images` raises."""
        from aotforge.verify.verify_plan import verify_images  # noqa: PLC0415 - the emulator: 60 ms

        self.observer.stage(f"verifying {len(plan.jobs)} images of {plan.pack}")
        return verify_images(
            plan,
            images,
            kernels_root=self.request.kernels,
            cache=self.request.cache,
            shared=self.shared,
            architectures=self.request.checkout.architectures,
            jobs=self.request.jobs,
            on_event=self.observer.verdict,
            on_stage=self.observer.stage,
            device=self.device,
            elsewhere=partial(self.cluster.verify, plan.toolchain) if self.cluster else None,
        )

    def offer(self, plan: Plan) -> None:
        """Offers images and verdicts of a release that exists to the shared places, if the cache has all."""
        wanted = any(self.shared.wants(KIND, job.key) for job in plan.jobs)
        if wanted and all(self.cache.has(job.key) for job in plan.jobs):
            from aotforge.verify.verdict_store import VerdictStore  # noqa: PLC0415 - numpy: 80 ms
            from aotforge.verify.verify_plan import image_tasks  # noqa: PLC0415 - the emulator: 60 ms

            verdicts = VerdictStore(self.request.cache, self.shared)
            for task in image_tasks(plan, self.compile(plan), self.request.kernels):
                verdicts.load(task)

    def build(self, plan: Plan, *, verify: bool) -> tuple[ImageSet, dict[JobKey, Verdict]]:
        """Images and their passed verdicts, none without `verify` or an executor. Raises VerifyError."""
        images = self.compile(plan)
        if not verify or not is_executed(plan):
            return images, {}
        report = self.verify(plan, images)
        report.require_passed()
        return images, {verdict.key: verdict for verdict in report.verdicts}


@contextmanager
def open_builder(
    request: CachedRequest, shared: SharedObjects, observer: BuildObserver, **options: Any
) -> Iterator[ImageBuilder]:
    """An `ImageBuilder` with the request's cache and cluster. Raises CacheError, ToolchainError."""
    with Cache(request.cache, shared) as cache, cluster_of(request, observer.note) as cluster:
        yield ImageBuilder(
            request=request, observer=observer, cache=cache, shared=shared, cluster=cluster, **options
        )


def is_executed(plan: Plan) -> bool:
    """Whether this machine executes a plan's images without a GPU: those of a pack are of one vendor."""
    return not any(map(unexecutable, plan.archs))


def check_no_host_calls(images: Iterable[KernelImage | ImageTask]) -> None:
    """Raises PackError for an image that prints or asserts, which only `verify` executes."""
    for image in images:
        if any(backend.makes_host_calls(image.binary) for backend in BACKENDS.values()):
            name = image.symbol if isinstance(image, KernelImage) else image.label
            raise PackError(
                f"the kernel {name} prints or asserts, and a release must not",
                cause="its source calls tl.device_print, or tl.device_assert with the option debug",
                hint="remove them from the kernel or the rules; ./dev verify executes such images",
            )


def pack_images(
    plan: Plan, images: ImageSet, manifest: ReleaseManifest, verdicts: Mapping[JobKey, Verdict]
) -> PackInput:
    """The plan's pack, read back, with a record per job for assembly. Raises PackError, CacheError."""
    loaded = list(images.values())
    check_no_host_calls(loaded)
    pack = write_pack(plan, loaded, release=manifest.name, compressor=manifest.compressor)
    verify_pack(open_files(pack), plan, loaded)
    records = tuple(
        ImageRecord(
            label=job.label,
            key=job.key,
            digest=images.digest(job.key),
            resources=images.resources(job.key),
            verdict=verdicts.get(job.key),
        )
        for job in plan.jobs
    )
    return PackInput(pack=pack, assembly={image.digest: image.asm for image in loaded}, records=records)


def build_packs(request: PartRequest, output: Path, *, observer: BuildObserver) -> str:
    """Puts the packs of a build's image tarballs at `output`/<pack> when all are complete; a line on them."""
    plans = make_plans(request)
    check_interfaces(request.root, plans)
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    limits = WorkerLimits(job_seconds=request.minutes * 60 or math.inf)
    with output_lock(output), shared_objects(request, observer.note) as shared:
        files: dict[str, bytes] = {}
        with open_builder(request, shared, observer, limits=limits) as builder:
            for plan in plans:
                images, verdicts = builder.build(plan, verify=request.verify)
                pack = pack_images(plan, images, manifest, verdicts).pack
                files |= {f"{pack.name}/{name}": data for name, data in pack.files.items()}
        changed = _files(output) != files
        if changed:
            with staged_folder(output, known=f"*/{SIGNATURE_FILE}") as staged:
                for name, data in files.items():
                    (staged / name).parent.mkdir(exist_ok=True)
                    (staged / name).write_bytes(data)
    count = sum(len(plan.jobs) for plan in plans)
    state = "are in" if changed else "were in already:"
    return f"{count} images of {', '.join(plan.pack for plan in plans)} {state} {output}"


def _files(output: Path) -> dict[str, bytes] | None:
    """Files below `output`; None when it has something else."""
    paths = [path for path in output.rglob("*") if path.is_symlink() or not path.is_dir()]
    if any(path.is_symlink() or not path.is_file() for path in paths):
        return None
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in paths}
