"""One build, from rules to tarballs: walks through the rooms in order and says what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotforge.compile import Cache, CompileEvent, ImageSet, Limits, compile_plan
from aotforge.manifests import load_architectures
from aotforge.pack import verify_pack, write_pack
from aotforge.pack.read import open_files
from aotforge.plan import Plan, plan_project
from aotforge.release import (
    PackInput,
    Release,
    ReleaseManifest,
    assemble_release,
    find_release,
    inputs_digest,
    load_release_manifest,
    member_time,
)
from aotforge.runtime import build_runtime


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What to build and where. `root` is the checkout; `output` gets `<release>/`, `cache` images and the runtime's objects.

    `jobs` bounds worker processes; `environment` is the caller's (SOURCE_DATE_EPOCH, PATH).
    """

    root: Path
    arch: str
    profile: str | None
    output: Path | None
    cache: Path
    jobs: int | None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did. `compiled`, `cached` and `shared` (compiled by another build meanwhile) count images; all are 0 when the
    release was there already (`release.fresh` is False)."""

    plan: Plan
    release: Release
    compiled: int
    cached: int
    shared: int
    damaged: tuple[str, ...]
    spills: tuple[str, ...]


def build(
    request: BuildRequest,
    *,
    on_stage: Callable[[str], None],
    on_event: Callable[[CompileEvent], None],
) -> BuildReport:
    """Kernels, images, runtime, tarballs. Raises AotforgeError; an earlier release in the output stays until a new one is whole."""
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    epoch = member_time(manifest, request.environment)
    plan = plan_project(request.root, archs=request.arch.split(","), profile=request.profile)
    licence = (request.root / "LICENSE").read_bytes()
    on_stage("runtime library")
    # before the kernels: a missing compiler is said in a second instead of after minutes
    runtime = build_runtime(
        request.root, cache=request.cache, jobs=request.jobs, environment=request.environment
    )
    output = request.output or default_output(request.root, plan)
    inputs = inputs_digest(manifest, [plan], runtime.prefix, epoch=epoch, licence=licence)
    release = find_release(manifest, output, inputs)
    seen = _Seen(on_event)
    if release is None:
        with Cache(request.cache) as cache:
            on_stage(f"{len(plan.jobs)} images")
            images = compile_plan(
                plan,
                kernels_root=request.root / "kernels",
                architectures=load_architectures(request.root / "manifests"),
                cache=cache,
                jobs=request.jobs,
                limits=Limits(),
                on_event=seen,
            )
            on_stage("image pack and tarballs")
            release = assemble_release(
                manifest,
                [_packed(plan, images, manifest)],
                runtime.prefix,
                output=output,
                licence=licence,
                epoch=epoch,
                inputs=inputs,
            )
    return seen.report(plan, release)


def default_output(root: Path, plan: Plan) -> Path:
    """Where a build's release folder goes: complete profiles to releases/dist, others below their own name, so that a
    quick build never takes a complete release's place."""
    folder = root / "releases" / "dist"
    return folder if plan.complete else folder / plan.profile


def _packed(plan: Plan, images: ImageSet, manifest: ReleaseManifest) -> PackInput:
    loaded = list(images.values())
    pack = write_pack(plan, loaded, release=manifest.name, compressor=manifest.pack_compressor())
    verify_pack(open_files(pack), plan, loaded)
    return PackInput(pack=pack, assembly={image.digest: image.asm for image in loaded})


class _Seen:
    """Counts compile events and hands them on."""

    def __init__(self, on_event: Callable[[CompileEvent], None]) -> None:
        self._on_event = on_event
        self._counts: Counter[str] = Counter()
        self._cached = 0
        self._damaged: list[str] = []
        self._spills: list[str] = []

    def __call__(self, event: CompileEvent) -> None:
        self._counts[event.kind] += 1
        if event.kind == "scanned":
            self._cached = event.done
        elif event.kind == "damaged":
            self._damaged.append(event.label)
        elif event.kind == "spills":
            self._spills.append(f"{event.label}: {event.detail}")
        self._on_event(event)

    def report(self, plan: Plan, release: Release) -> BuildReport:
        return BuildReport(
            plan=plan,
            release=release,
            compiled=self._counts["compiled"],
            cached=self._cached,
            shared=self._counts["shared"],
            damaged=tuple(self._damaged),
            spills=tuple(self._spills),
        )


def report_fields(report: BuildReport) -> dict[str, object]:
    """The report for `--json`."""
    release = report.release
    return {
        "release": release.name,
        "folder": str(release.folder),
        "fresh": release.fresh,
        "pack": report.plan.pack,
        "profile": report.plan.profile,
        "images": len(report.plan.jobs),
        "compiled": report.compiled,
        "cached": report.cached,
        "shared": report.shared,
        "damaged": report.damaged,
        "spills": report.spills,
        "platform": release.platform.tag,
        "development": release.development,
        "files": [
            {"name": f.name, "size": f.size, "sha256": f.sha256, "tar_sha256": f.tar_sha256}
            for f in release.files
        ],
    }


def report_lines(report: BuildReport) -> Sequence[str]:
    """The report for people."""
    release = report.release
    lines = []
    if not release.fresh:
        lines.append(f"{release.folder} is up to date ({len(report.plan.jobs)} images)")
    else:
        counts = f"{report.compiled} compiled, {report.cached} from the cache"
        if report.shared:
            counts += f", {report.shared} compiled by another build"
        lines.append(f"{len(report.plan.jobs)} images of {report.plan.pack}: {counts}")
        lines.extend(f"damaged cache entry, compiled again: {label}" for label in report.damaged)
        lines.extend(f"spills: {text}" for text in report.spills)
        lines.extend(f"{f.size:>12,}  {release.folder / f.name}" for f in release.files)
    lines.extend(f"development build: {reason}" for reason in release.development)
    return lines
