"""The build of a release, from rules to tarballs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from aotforge.base.cache_folder import evict
from aotforge.base.files import output_lock
from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.base.progress import Observer
from aotforge.compile.compile_plan import toolchain_of
from aotforge.compile.model import CompileEvent
from aotforge.errors import OutputError
from aotforge.formats.api_level import feature_level, level_of
from aotforge.formats.artifact_names import parse_manylinux
from aotforge.library.build_linux import build_runtime
from aotforge.library.interface import check_interfaces
from aotforge.library.library_build import LibraryRequest
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import (
    is_executed,
    make_plans,
    open_builder,
    pack_images,
    planned_architectures,
    plans_verifier_digest,
    require_executors,
)
from aotforge.pipeline.requests import BuildRequest, PartRequest, ToolsRequest, WindowsRequest
from aotforge.pipeline.shared_cache import shared_objects
from aotforge.plan.gates import pytorch_use
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from aotforge.release.assemble import (
    assemble_release,
    check_not_verified,
    check_replaceable,
    find_release,
    inputs_digest,
)
from aotforge.release.model import PackInput, load_release_manifest, member_time
from aotforge.release.release import Release
from aotforge.run.choose import choose_executions
from aotforge.run.step import KERNELS, RUNTIME, Executions, ExecutionTarget, rootfs_digests
from aotforge.verify.verdict import VerifyEvent

_TO_LANES = "to lanes of registers"
"""The end of `image_set.spills` without scratch."""


@dataclass(frozen=True, kw_only=True)
class ImageCounts:
    """Numbers of images. `shared`: compiled by another build at the same time; `known`: verified before.

    `damaged` are labels of cache entries, `spills` images with spilled registers.
    """

    compiled: int = 0
    cached: int = 0
    shared: int = 0
    executed: int = 0
    known: int = 0
    damaged: tuple[str, ...] = ()
    spills: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BuildReport(ImageCounts):
    """A release in its folder, with the plans of its packs; all counts are 0 where it existed before.

    `roots` are names and digests of root filesystems, `shared_cache` faults and statistics.
    """

    plans: tuple[Plan, ...]
    release: Release
    shared_cache: tuple[str, ...] = ()
    executor: str
    roots: tuple[tuple[str, str], ...]
    compiler: str

    @property
    def images(self) -> int:
        """Compile jobs of all plans."""
        return sum(len(plan.jobs) for plan in self.plans)

    @property
    def packs(self) -> list[str]:
        """Names of the image packs."""
        return [plan.pack for plan in self.plans]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        release = self.release
        same = (*(count.name for count in fields(ImageCounts)), "executor", "shared_cache")
        return {
            "release": release.name,
            "folder": str(release.folder),
            "fresh": release.fresh,
            "packs": self.packs,
            "profile": self.plans[0].profile,
            "images": self.images,
            "verified": release.contents.verified,
            "platform": release.contents.platform,
            "development": release.contents.development,
            "left_out": [note for plan in self.plans for note in plan.notes()],
            "files": file_fields(release.files),
            **{name: getattr(self, name) for name in same},
            "roots": dict(self.roots),
        }

    def lines(self) -> list[str]:
        """Lines of text."""
        release = self.release
        if not release.fresh:
            lines = [f"{release.folder} is up to date ({self.images} images)"]
        else:
            sizes = [file.size for file in release.files]
            made = f"release in {release.folder}: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"
            lines = [*self._made(), made]
        reasons = [f"development build: {reason}" for reason in release.contents.development]
        if reasons:
            platform = parse_manylinux(release.contents.platform)
            others = f" and on others with glibc {platform.version} or newer" if platform else ""
            reasons.append(f"it runs on this machine{others}; to publish one, build it with --executor auto")
        if less := {left_out.kernel for plan in self.plans for left_out in plan.left_out}:
            profile = f"profile {self.plans[0].profile} has no images of their own for some calls"
            lines.append(f"note: {profile} of {len(less)} kernels; ./dev plan lists them")
        use = _pytorch_use(self.plans, feature_level(level_of(release.name)))
        return [*lines, *reasons, *_next_steps(release.folder, self.plans), *use]

    def _made(self) -> list[str]:
        """Lines on how a new release was made."""
        shared = f", {self.shared} compiled by another build" if self.shared else ""
        lines = [
            f"{self.images} images of {', '.join(self.packs)}: "
            f"{self.compiled} compiled, {self.cached} from the cache{shared}"
        ]
        if self.release.contents.verified:
            lines.append(f"all verified: {self.executed} executed, {self.known} known before")
        lines += [f"damaged cache entry, compiled again: {label}" for label in self.damaged]
        lines += [f"spills: {text}" for text in self.spills if not text.endswith(_TO_LANES)]
        moved = sum(text.endswith(_TO_LANES) for text in self.spills)
        if moved:
            lines.append(
                f"{moved} images spill scalar registers to lanes of other registers, not to memory; "
                "--json lists them"
            )
        return lines


def _pytorch_use(plans: Sequence[Plan], level: str) -> list[str]:
    archs = [arch for plan in plans for arch in plan.archs if arch.startswith("gfx")]
    use = pytorch_use((gate for plan in plans for gate in plan.gates), archs, level)
    return [f"PyTorch will use these images: {use}"] if archs else []


def _next_steps(folder: Path, plans: Sequence[Plan]) -> list[str]:
    release = quote(str(folder))
    if not any(kernel.operator == "attn_fwd" for kernel in plans[0].kernels):
        return [f"next: ./dev coverage {release}"]  # nothing that a demo of attention or PyTorch could use
    return [
        f"next: ./dev demo --arch {plans[0].archs[0]} --release {release}",
        f"      ./dev dropin --release {release} --pytorch-lib TORCH/LIB",
    ]


def file_fields(files: Sequence[Any]) -> list[dict[str, object]]:
    """JSON values of a release's files."""
    return [
        {name: getattr(file, name) for name in ("name", "size", "sha256", "tar_sha256")} for file in files
    ]


class EventCounter:
    """Counts events and passes them on."""

    def __init__(self, observer: BuildObserver) -> None:
        self._observer = observer
        self._numbers: Counter[str] = Counter()
        self._labels: dict[str, list[str]] = {"damaged": [], "spills": []}
        self.stage, self.note = observer.stage, observer.note

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state."""
        if event.kind in self._labels:
            detail = f": {event.detail}" if event.kind == "spills" else ""
            self._labels[event.kind].append(f"{event.label}{detail}")
        elif event.kind == "scanned":
            self._numbers["cached"] += event.done
        elif event.kind in {"compiled", "shared"}:
            self._numbers[event.kind] += 1
        self._observer.event(event)

    def verdict(self, event: VerifyEvent) -> None:
        """An image has its verdict."""
        self._numbers["known" if event.verdict.cached else "executed"] += 1
        self._observer.verdict(event)

    def counts(self) -> dict[str, Any]:
        """The numbers and labels so far, by field of `BuildReport`."""
        return {**self._numbers, **{kind: tuple(labels) for kind, labels in self._labels.items()}}


class ReleaseDraft:
    """A release that can be made: everything that can be refused before something slow begins was checked.

    `manifest` is that of the API level, `images` that of packs, the same at every level.
    Raises ManifestError, ExecutorError, RulesError, OutputError for an output that cannot be replaced.
    """

    def __init__(self, request: BuildRequest, *, observer: Observer) -> None:
        root = request.root
        self.request = request
        self.images = load_release_manifest(root / "manifests" / "release.yaml")
        self.manifest = self.images.at(request.version)
        self.epoch = member_time(self.manifest, request.environment)
        self.executions, self.plans = resolve_targets(request, (KERNELS, RUNTIME), observer=observer)
        self.output = request.output or default_output(root, self.plans)
        with output_lock(self.output / self.manifest.name):  # assembly takes the lock and checks again
            check_replaceable(self.manifest, self.output, [plan.pack for plan in self.plans])
        check_interfaces(root, self.plans)
        self.licence = (root / "LICENSE").read_bytes()

    def inputs(self, prefix: Path, *, verified: bool) -> str:
        """The digest of everything that decides the release's bytes. `prefix` has the installed library."""
        return inputs_digest(
            self.manifest,
            self.plans,
            prefix,
            epoch=self.epoch,
            licence=self.licence,
            architectures=planned_architectures(self.request.checkout.architectures, self.plans),
            verifier=plans_verifier_digest(self.request.checkout, self.plans) if verified else "",
        )

    def find(self, prefix: Path) -> Release | None:
        """The release that was made from the same inputs before."""
        if self.request.verify and not self.request.unexecuted and not all(map(is_executed, self.plans)):
            return None  # such a release has images that nothing executed: this request refuses them
        # a verified release is all that an unverified build of the same inputs needs
        inputs = (
            self.inputs(prefix, verified=verified)
            for verified in sorted({True, self.request.verify}, reverse=True)
        )
        return next(
            filter(None, (find_release(self.manifest, self.output, digest) for digest in inputs)), None
        )

    def assemble(self, packs: Sequence[PackInput], prefix: Path) -> Release:
        """The release of these packs and the library in `prefix`. Raises what `assemble_release` raises."""
        return assemble_release(
            self.manifest,
            packs,
            prefix,
            output=self.output,
            licence=self.licence,
            epoch=self.epoch,
            inputs=self.inputs(prefix, verified=self.request.verify),
            unverified=not self.request.verify or self.request.unexecuted,
        )


def build(request: BuildRequest, *, observer: BuildObserver) -> BuildReport:
    """Library, images, verdicts, packs, tarballs, which replace an earlier release. Raises AotforgeError."""
    draft = ReleaseDraft(request, observer=observer)
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        observer.note(text)

    with shared_objects(request, note) as shared:
        report = _build(draft, shared, observer=observer)
    if report.release.fresh:
        try:
            evict(request.cache, int(request.cache_limit * 2**30))
        except OutputError as error:  # the release is complete
            note(f"the cache folder stays above cache-limit: {error.what}")
    return replace(report, shared_cache=tuple(notes))


def _build(draft: ReleaseDraft, shared: SharedObjects, *, observer: BuildObserver) -> BuildReport:
    request = draft.request
    observer.stage("runtime library")
    # before the kernels: a missing compiler is reported in a second instead of after minutes
    runtime = build_runtime(library_request(request, draft.executions[RUNTIME], shared))
    release = draft.find(runtime.prefix)
    counter = EventCounter(observer)
    if release is None:
        if request.verify:
            require_executors(draft.plans, request.cache, unexecuted=request.unexecuted)
        else:
            check_not_verified(draft.manifest, draft.output)
        packs = []
        with open_builder(request, shared, counter, execution=draft.executions[KERNELS]) as builder:
            for plan in draft.plans:
                images, verdicts = builder.build(plan, verify=request.verify)
                packs.append(pack_images(plan, images, draft.images, verdicts))
        observer.stage("tarballs")
        release = draft.assemble(packs, runtime.prefix)
    elif shared is not NOT_SHARED:
        with open_builder(request, shared, observer) as builder:
            for plan in draft.plans:
                builder.offer(plan)
    return BuildReport(
        plans=draft.plans,
        release=release,
        executor=draft.executions[KERNELS].runner.name,
        roots=rootfs_digests(draft.executions),
        compiler=runtime.compiler,
        **counter.counts(),
    )


def library_request(
    request: BuildRequest | WindowsRequest, execution: ExecutionTarget, shared: SharedObjects = NOT_SHARED
) -> LibraryRequest:
    """The library of a build, compiled in `execution`."""
    return LibraryRequest(
        shared=shared,
        root=request.root,
        cache=request.cache,
        level=level_of(request.version) if request.version else "",
        jobs=request.jobs,
        environment=request.environment,
        execution=execution,
    )


def executions_of(request: ToolsRequest, roots: Sequence[str], *, observer: Observer) -> Executions:
    """The request's executor with the root filesystems `roots`. Raises ExecutorError, ContainerError."""
    return choose_executions(
        request.executor,
        request.root,
        roots=roots,
        cache=request.cache,
        environment=request.environment,
        observer=observer,
    )


def resolve_targets(
    request: BuildRequest | PartRequest, roots: Sequence[str], *, observer: Observer
) -> tuple[Executions, tuple[Plan, ...]]:
    """The executor with `roots`, and one plan per pack for the compiler there."""
    executions = executions_of(request, roots, observer=observer)
    return executions, make_plans(
        request,
        only=Only(request.only, operators=True),
        toolchain=toolchain_of(executions[KERNELS], cache=request.cache),
    )


def default_output(root: Path, plans: Sequence[Plan]) -> Path:
    """releases/dist for complete profiles, for others below it, so that none replaces a complete release."""
    folder = root / "releases" / "dist"
    return folder if all(plan.complete for plan in plans) else folder / plans[0].profile
