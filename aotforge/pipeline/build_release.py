"""One build, from rules to tarballs: walks through the rooms in order and says what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.base.architectures import Architecture, load_architectures
from aotforge.base.files import output_lock
from aotforge.base.progress import Observer
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan, toolchain_of
from aotforge.compile.image_set import ImageSet
from aotforge.compile.model import CompileEvent
from aotforge.compile.pool import WorkerLimits
from aotforge.errors import VerifyError
from aotforge.library.build_linux import build_runtime
from aotforge.library.interface import check_interfaces
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.pipeline.display import BuildObserver
from aotforge.plan.families import load_families
from aotforge.plan.model import JobKey, Plan
from aotforge.plan.planner import plan_project, select_archs
from aotforge.release.assemble import assemble_release
from aotforge.release.model import ImageRecord, PackInput, Release
from aotforge.release.overwrite_guard import check_not_verified, check_replaceable
from aotforge.release.release_manifest import ReleaseManifest, load_release_manifest, member_time
from aotforge.release.stamp import find_release, inputs_digest
from aotforge.sandbox.executors.choose import choose_execution_targets
from aotforge.sandbox.executors.step import KERNELS, RUNTIME, ExecutionTarget, ExecutionTargets
from aotforge.toolchain.triton import Toolchain, read_toolchain
from aotforge.verify.verdict import Verdict, VerifyEvent
from aotforge.verify.verifier_digest import verifier_digest


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What to build and where. `root` is the checkout; `output` gets `<release>/`, `cache` images and the runtime's objects.

    Chips of one image pack share it; chips of several make several packs. `jobs` bounds worker processes; `environment` is the
    caller's (SOURCE_DATE_EPOCH, PATH). Without `verify` no image is executed and the release is a development build. `executor` says where
    kernels and library are compiled (docs/executors.md); with `keep` a failed container is left for people to look at.
    """

    root: Path
    archs: tuple[str, ...]
    profile: str | None
    output: Path | None
    cache: Path
    jobs: int | None
    verify: bool = True
    executor: str = "local"
    keep: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did. `compiled`, `cached` and `shared` (compiled by another build meanwhile) count images, `executed` and `known`
    those verified now and before; all are 0 when the release was there already (`release.fresh` is False). `roots` are
    the root file systems that took part: names and digests. `compiler` made the library."""

    plans: tuple[Plan, ...]
    release: Release
    compiled: int
    cached: int
    shared: int
    executed: int
    known: int
    damaged: tuple[str, ...]
    spills: tuple[str, ...]
    executor: str
    roots: tuple[tuple[str, str], ...]
    compiler: str


def build(
    request: BuildRequest,
    *,
    observer: BuildObserver,
) -> BuildReport:
    """Kernels, images, verdicts, runtime, tarballs. Raises AotforgeError; an earlier release in the
    output stays until a new one is whole."""
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    epoch = member_time(manifest, request.environment)
    executions = execution_targets(request, (KERNELS, RUNTIME), observer=observer)
    plans = make_plans(request, toolchain=toolchain_of(executions.kernels, cache=request.cache))
    licence = (request.root / "LICENSE").read_bytes()
    output = request.output or default_output(request.root, plans)
    with output_lock(output / manifest.name):
        # an output that cannot be written or is being written, or a release that must not be replaced, is said now;
        # assembly takes the lock and looks again
        check_replaceable(manifest, output, [plan.pack for plan in plans])
    check_interfaces(request.root, plans)
    observer.stage("runtime library")
    # before the kernels: a missing compiler is said in a second instead of after minutes
    runtime = build_runtime(
        request.root,
        cache=request.cache,
        jobs=request.jobs,
        environment=request.environment,
        execution=executions.runtime,
    )

    def digest(judges: str) -> str:
        return inputs_digest(
            manifest, plans, runtime.prefix, epoch=epoch, licence=licence, architectures=chips_of(request, plans), verifier=judges
        )  # fmt: skip

    verified = digest(judges_of(request, plans))
    inputs = verified if request.verify else digest("")
    # a verified release is all that an unverified build of the same inputs could want
    release = find_release(manifest, output, verified) or find_release(manifest, output, inputs)
    counter = EventCounter(observer)
    if release is None:
        if request.verify:
            require_virtual_gpus(request, plans)
        else:
            check_not_verified(manifest, output)
        with Cache(request.cache) as cache:
            packs = [_pack(plan, request, cache, manifest, counter, executions.kernels) for plan in plans]
        observer.stage("tarballs")
        release = assemble_release(
            manifest,
            packs,
            runtime.prefix,
            output=output,
            licence=licence,
            epoch=epoch,
            inputs=inputs,
            unverified=not request.verify,
        )
    return counter.report(plans, release, executions, runtime.compiler)


def execution_targets(
    request: BuildRequest,
    roots: Sequence[str],
    *,
    observer: Observer,
) -> ExecutionTargets:
    """The executor that a request asks for, with the roots that its parts need. Raises ExecutorError, ContainerError."""
    return choose_execution_targets(
        request.executor,
        request.root,
        roots=roots,
        cache=request.cache,
        keep=request.keep,
        environment=request.environment,
        observer=observer,
    )


def make_plans(
    request: BuildRequest, *, toolchain: Callable[[str], Toolchain] = read_toolchain
) -> tuple[Plan, ...]:
    """One plan per image pack of the chips, in the packs' order. Raises what `plan_project` raises."""
    return tuple(
        plan_project(request.root, archs=archs, profile=request.profile, toolchain=toolchain)
        for archs in by_pack(request.root, request.archs)
    )


def by_pack(root: Path, archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Chips grouped by their image packs, in the packs' order. Raises ManifestError, UnknownNameError."""
    architectures = load_architectures(root / "manifests")
    packs: dict[str, list[str]] = {}
    for arch in archs:
        packs.setdefault(select_archs(architectures, [arch])[0], []).append(arch)
    return tuple(tuple(packs[pack]) for pack in sorted(packs))


def default_output(root: Path, plans: tuple[Plan, ...]) -> Path:
    """Where a build's release folder goes: complete profiles to releases/dist, others below their own name, so that a
    quick build never takes a complete release's place."""
    folder = root / "releases" / "dist"
    return folder if all(plan.complete for plan in plans) else folder / plans[0].profile


def chips_of(request: BuildRequest, plans: Sequence[Plan]) -> dict[str, Architecture]:
    """The figures of the plans' chips. Raises ManifestError."""
    known = load_architectures(request.root / "manifests").architectures
    return {arch: known[arch] for plan in plans for arch in plan.archs}


def compiled_images(
    root: Path,
    archs: Sequence[str],
    *,
    profile: str | None,
    cache: Path,
    jobs: int | None,
    observer: BuildObserver,
) -> tuple[Plan, ImageSet]:
    """A plan for chips of one pack and its images, compiled where the cache lacks them. Raises what `plan_project` and
    `compile_plan` raise."""
    plan = plan_project(root, archs=archs, profile=profile)
    with Cache(cache) as opened:
        images = compile_plan(
            plan,
            kernels_root=root / "kernels",
            architectures=load_architectures(root / "manifests"),
            cache=opened,
            jobs=jobs,
            on_event=observer.event,
        )
    return plan, images


def judges_of(request: BuildRequest, plans: Sequence[Plan]) -> str:
    """The digest of everything that judges the plans' images."""
    kernels, wanted = request.root / "kernels", {job.family for plan in plans for job in plan.jobs}
    # a family's name need not be its folder's
    folders = {loaded.folder for loaded in load_families(kernels) if loaded.family.name in wanted}
    return verifier_digest(kernels, folders)


def require_virtual_gpus(request: BuildRequest, plans: Sequence[Plan]) -> None:
    """Before anything is compiled: every chip can be emulated, and the interpreter is there. Raises VerifyError, ToolchainError."""
    # only builds that compile need the emulator: importing it takes longer than a build with nothing to do
    from aotforge.verify.verify_plan import load_interpreters  # noqa: PLC0415
    from aotforge.virtual_gpu.emulator.targets import emulated_targets  # noqa: PLC0415

    archs = [arch for plan in plans for arch in plan.archs]
    emulated = emulated_targets()
    unknown = [arch for arch in archs if arch not in emulated]
    if unknown:
        raise VerifyError(
            f"images for {', '.join(unknown)} cannot be verified: there is no virtual GPU of that kind",
            cause=f"the emulator knows {', '.join(emulated)}",
            hint="leave the chip out, or make a development build: --no-verify",
        )
    load_interpreters(archs, request.cache)


def _pack(
    plan: Plan,
    request: BuildRequest,
    cache: Cache,
    manifest: ReleaseManifest,
    observer: BuildObserver,
    execution: ExecutionTarget | None,
) -> PackInput:
    """Compiled, verified and packed."""
    observer.stage(f"{len(plan.jobs)} images of {plan.pack}")
    images = compile_plan(
        plan,
        kernels_root=request.root / "kernels",
        architectures=load_architectures(request.root / "manifests"),
        cache=cache,
        jobs=request.jobs,
        limits=WorkerLimits(),
        on_event=observer.event,
        execution=execution,
    )
    verdicts: dict[JobKey, Verdict] = {}
    if request.verify:
        from aotforge.verify.verify_plan import verify_images  # noqa: PLC0415 - as above

        observer.stage(f"verifying {len(plan.jobs)} images of {plan.pack}")
        report = verify_images(
            plan,
            images,
            kernels_root=request.root / "kernels",
            cache=request.cache,
            architectures=load_architectures(request.root / "manifests"),
            jobs=request.jobs,
            on_event=observer.verdict,
        )
        report.require_passed()
        verdicts = {verdict.key: verdict for verdict in report.verdicts}
    return packed(plan, images, manifest, verdicts)


def packed(
    plan: Plan, images: ImageSet, manifest: ReleaseManifest, verdicts: Mapping[JobKey, Verdict]
) -> PackInput:
    """The plan's pack, read back, with a record per job for assembly. Raises PackError, CacheError."""
    loaded = list(images.values())
    pack = write_pack(plan, loaded, release=manifest.name, compressor=manifest.pack_compressor())
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


class EventCounter:
    """Counts events and passes them on."""

    def __init__(self, observer: BuildObserver) -> None:
        self.stage, self.note = observer.stage, observer.note
        self._observer = observer
        self._counts: Counter[str] = Counter()
        self._cached = 0
        self._damaged: list[str] = []
        self._spills: list[str] = []

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state."""
        self._counts[event.kind] += 1
        if event.kind == "scanned":
            self._cached += event.done
        elif event.kind == "damaged":
            self._damaged.append(event.label)
        elif event.kind == "spills":
            self._spills.append(f"{event.label}: {event.detail}")
        self._observer.event(event)

    def verdict(self, event: VerifyEvent) -> None:
        """An image has its verdict."""
        self._counts["known" if event.verdict.cached else "executed"] += 1
        self._observer.verdict(event)

    def report(
        self, plans: tuple[Plan, ...], release: Release, executions: ExecutionTargets, compiler: str
    ) -> BuildReport:
        """The build's report, with what was counted."""
        return BuildReport(
            plans=plans,
            release=release,
            compiled=self._counts["compiled"],
            cached=self._cached,
            shared=self._counts["shared"],
            executed=self._counts["executed"],
            known=self._counts["known"],
            damaged=tuple(self._damaged),
            spills=tuple(self._spills),
            executor=executions.executor,
            roots=executions.rootfs_digests(),
            compiler=compiler,
        )


def report_fields(report: BuildReport) -> dict[str, object]:
    """The report for `--json`."""
    release = report.release
    return {
        "release": release.name,
        "folder": str(release.folder),
        "fresh": release.fresh,
        "packs": [plan.pack for plan in report.plans],
        "profile": report.plans[0].profile,
        "images": _images(report),
        "compiled": report.compiled,
        "cached": report.cached,
        "shared": report.shared,
        "executed": report.executed,
        "known": report.known,
        "verified": release.verified,
        "damaged": report.damaged,
        "spills": report.spills,
        "executor": report.executor,
        "roots": dict(report.roots),
        "platform": release.platform.tag,
        "development": release.development,
        "files": [
            {"name": f.name, "size": f.size, "sha256": f.sha256, "tar_sha256": f.tar_sha256}
            for f in release.files
        ],
    }


def _images(report: BuildReport) -> int:
    return sum(len(plan.jobs) for plan in report.plans)


def report_lines(report: BuildReport) -> Sequence[str]:
    """The report for people."""
    release = report.release
    lines = []
    if not release.fresh:
        lines.append(f"{release.folder} is up to date ({_images(report)} images)")
    else:
        counts = f"{report.compiled} compiled, {report.cached} from the cache"
        if report.shared:
            counts += f", {report.shared} compiled by another build"
        packs = ", ".join(plan.pack for plan in report.plans)
        lines.append(f"{_images(report)} images of {packs}: {counts}")
        if release.verified:
            lines.append(f"all verified: {report.executed} executed, {report.known} known before")
        lines.extend(f"damaged cache entry, compiled again: {label}" for label in report.damaged)
        lines.extend(f"spills: {text}" for text in report.spills)
        lines.extend(f"{f.size:>12,}  {release.folder / f.name}" for f in release.files)
    lines.extend(f"development build: {reason}" for reason in release.development)
    return lines
