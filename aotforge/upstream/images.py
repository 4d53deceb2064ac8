"""AOTriton's image packs from a checkout: its jobs through this project's compiler, pool and cache."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.base.architectures import load_architectures
from aotforge.base.files import output_errors, output_lock, scratch_folder, staged_folder
from aotforge.base.object_cache import NOT_SHARED, SharedObjects
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.compile.model import CompileEvent, KernelImage, Resources
from aotforge.errors import CompileError, ReleaseError, UnknownNameError, listed
from aotforge.formats.archive import Member, sha256_file, write_tar_gz
from aotforge.formats.sums import SUMS, sums_bytes
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.parts import PartReport, parse_part, split
from aotforge.plan.model import CompileJob, Plan
from aotforge.toolchain.triton import Toolchain, read_packages
from aotforge.upstream.checkout import AotritonCheckout, CheckoutRequest, generator_settings, open_checkout
from aotforge.upstream.generate import Generator, find_sandbox
from aotforge.upstream.jobs import (
    make_jobs,
    parse_job_lines,
    read_functionals,
    stage_sources,
    write_names,
)

IMAGES, RECORD, TEXTS = "aotriton.images", "record.json", "asm.tar.gz"
"""What the output folder has besides SHA256SUMS."""


@dataclass(frozen=True, kw_only=True)
class UpstreamRequest(CheckoutRequest):
    """Packs. `root`: this project; `only`: a regular expression that a functional's label has; `skip_failed`:
    pack an empty image, as AOTriton's build does, and list it in the record; `record`: that of a build which
    this one must reproduce.
    """

    root: Path
    only: str = ""
    skip_failed: bool = False
    record: Mapping[str, Any] | None = None

    def command(self, only: str) -> str:
        """The command line of this request for other functionals."""
        words = ["./dev", "upstream.images", str(self.source), "--arch", ",".join(self.archs)]
        words += ["--triton", str(self.packages), "--output", str(self.output), "--only", only]
        words += ["--head-dims", ",".join(map(str, self.head_dims))] if self.head_dims else []
        return shlex.join(words)


@dataclass(frozen=True, kw_only=True)
class PackedImage:
    """An image in the record: which functional has it under which name, and what it is and uses."""

    functional: str
    entry: str
    job: str
    sha256: str
    resources: Resources | None


@dataclass(frozen=True, kw_only=True)
class UpstreamReport:
    """What was built. `failed`: reasons by job; `left_out`: functionals without a Triton kernel."""

    output: Path
    version: str
    commit: str
    triton: str
    sandboxed: bool
    compiled: int
    compile_seconds: float
    images: tuple[PackedImage, ...]
    failed: Mapping[str, str]
    left_out: tuple[str, ...]
    packed_bytes: int

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"output": str(self.output), "images": len(self.images)}

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"AOTriton {self.version} ({self.commit[:12]}), Triton {self.triton}",
            f"{len(self.images)} images, {self.compiled} compiled in {self.compile_seconds:.0f} s, "
            f"{self.packed_bytes} bytes packed",
            *(f"failed, packed empty: {reason}" for reason in self.failed.values()),
            *(f"left out, no Triton kernel: {label}" for label in self.left_out),
            str(self.output),
        ]


def build_images(
    request: UpstreamRequest, *, observer: BuildObserver, shared: SharedObjects = NOT_SHARED
) -> UpstreamReport:
    """Generates, compiles, packs and records. Raises UnsupportedError, CompileError, ToolchainError,
    OutputError, CacheError, and ReleaseError where the result is not the recorded one; then the output folder
    is as before."""
    with (
        output_lock(request.output),
        _generated(request, observer) as build,
        staged_folder(request.output, known=RECORD) as staged,
    ):
        with Cache(request.cache, shared) as cache:
            build.compile(cache)
        observer.stage("packing")
        build.pack()
        with output_errors(request.output):
            return build.write(staged)


def compile_part(
    request: UpstreamRequest, part: str, *, observer: BuildObserver, shared: SharedObjects = NOT_SHARED
) -> PartReport:
    """Compiles one of several parts into the caches, for `build_images` to find there. Raises as it does."""
    number, count = parse_part(part)
    with _generated(request, observer) as build, Cache(request.cache, shared) as cache:
        made = build.compile(cache, number, count)
    return PartReport(
        part=f"{number}/{count}",
        images=made,
        packs=request.archs,
        compiled=build.compiled,
        cached=made - build.compiled,
        executed=0,
        known=0,
    )


@contextmanager
def _generated(request: UpstreamRequest, observer: BuildObserver) -> Iterator["_Build"]:
    """The jobs of a request."""
    checkout = open_checkout(request.source, request.environment)
    settings = generator_settings(request.head_dims)
    toolchain = read_packages(request.packages)
    programs = find_sandbox(observer)
    with scratch_folder(request.cache / "upstream", "build-") as folder:
        generator = Generator(
            checkout=checkout, packages=request.packages, folder=folder, programs=programs, settings=settings
        )
        observer.stage("generating")
        generator.generate(request.archs)
        yield _Build(request, checkout, toolchain, generator, observer)


@dataclass
class _Build:
    request: UpstreamRequest
    checkout: AotritonCheckout
    toolchain: Toolchain
    generator: Generator
    observer: BuildObserver

    def __post_init__(self) -> None:
        build = self.generator.build
        lines = {line.image: line for line in parse_job_lines((build / "Bare.compile").read_text("utf-8"))}
        every = read_functionals(build)
        chosen = [functional for functional in every if re.search(self.request.only, functional.label)]
        if not chosen:
            raise UnknownNameError(
                f"--only {self.request.only} selects none of {len(every)} functionals",
                hint=f"their names have the form {every[0].label}" if every else "",
            )
        self.functionals = [
            functional for functional in chosen if all(image in lines for image in functional.images)
        ]
        self.left_out = tuple(functional.label for functional in chosen if functional not in self.functionals)
        wanted = dict.fromkeys(image for functional in self.functionals for image in functional.images)
        self.root = self.generator.folder / "kernels"
        tree = stage_sources(self.checkout.kernels, self.root)
        self.architectures = load_architectures(self.request.root / "manifests")
        targets = {arch: self.architectures.architectures[arch].target(arch) for arch in self.request.archs}
        chosen_lines = [lines[image] for image in wanted]
        self.jobs = {
            line.image: job
            for line, job in make_jobs(chosen_lines, tree, self.checkout.kernels, targets, self.toolchain)
        }
        self.failed: dict[str, str] = {}
        self.compiled, self.seconds = 0, 0.0

    def compile(self, cache: Cache, number: int = 1, count: int = 1) -> int:
        """Compiles what the cache lacks of one of several parts. Returns how many jobs that are.

        Raises CompileError with commands, unless failures are skipped.
        """
        self.observer.stage("compiling")
        jobs = split(list({job.key: job for job in self.jobs.values()}.values()), count)[number - 1]
        try:
            self._images = self._compile(jobs, cache)
        except CompileError:
            if not self.request.skip_failed or not self.failed:
                raise
            self._images = self._compile([job for job in jobs if job.key not in self.failed], cache)
        return len(jobs)

    def _compile(self, jobs: Sequence[CompileJob], cache: Cache) -> ImageSet:
        plan = Plan(
            pack="aotriton",
            archs=self.request.archs,
            profile="upstream",
            complete=False,
            operators=(),
            jobs=tuple(jobs),
            kernels=(),
            source_digest="",
            settings_digest="",
            toolchain=self.toolchain,
        )
        return compile_plan(
            plan,
            kernels_root=self.root,
            architectures=self.architectures,
            cache=cache,
            jobs=self.request.jobs,
            on_event=self._event,
            packages=self.request.packages,
            command=self._command,
        )

    def _event(self, event: CompileEvent) -> None:
        self.compiled += event.kind == "compiled"
        self.seconds += event.seconds if event.kind == "compiled" else 0.0
        if event.kind == "failed":
            self.failed[event.key] = f"{event.label}: {event.detail}"
        if event.kind != "spills":  # AOTriton ships images that spill
            self.observer.event(event)

    def _command(self, job: CompileJob) -> str:
        """Compiles the first functional that has the job's image."""
        holder = next(
            functional
            for functional in self.functionals
            if any(self.jobs[image].key == job.key for image in functional.images)
        )
        return self.request.command(f"^{re.escape(holder.label)}$")

    def pack(self) -> None:
        """Writes images where the packer expects them, and runs it."""
        for image, job in self.jobs.items():
            image.parent.mkdir(parents=True, exist_ok=True)
            if job.key in self.failed:
                image.write_bytes(b"")
                image.with_suffix(".json").write_text(json.dumps({"compile_status": "Exception"}))
                continue
            made = self._images[job.key]
            image.write_bytes(made.binary)
            image.with_suffix(".json").write_text(json.dumps(_launch_values(made)))
        clusters: dict[Path, Path] = {}
        archives: dict[Path, Path] = {}
        for folder, kernel in dict.fromkeys(
            (functional.folder, functional.kernel) for functional in self.functionals
        ):
            place = self.generator.build / IMAGES / folder
            names = {
                functional.file: functional.name
                for functional in self.functionals
                if (functional.folder, functional.kernel) == (folder, kernel)
            }
            write_names(place / f"{kernel}.nsv", names)
            archives[place / f"{kernel}.zip"] = place / f"{kernel}.nsv"
            clusters |= {file: file.with_suffix(".nsv") for file in names}
        self.generator.pack(clusters, archives)
        self.archives = tuple(archives)

    def write(self, staged: Path) -> UpstreamReport:
        """Moves the archives to the staged output folder, with texts, record and sums."""
        build = self.generator.build / IMAGES
        signature = (self.generator.build / "__signature__.json").read_bytes()
        size = 0
        for archive in self.archives:
            place = staged / IMAGES / archive.relative_to(build)
            place.parent.mkdir(parents=True, exist_ok=True)
            (place.parents[1] / "__signature__").write_bytes(signature)
            size += archive.stat().st_size
            place.write_bytes(archive.read_bytes())
        images = tuple(self._packed())
        texts = {
            f"{digest}.s": job
            for digest, job in {
                self._images.digest(job.key): job for job in self.jobs.values() if job.key not in self.failed
            }.items()
        }
        write_tar_gz(
            staged / TEXTS,
            {name: Member(content=self._images[job.key].asm.encode()) for name, job in texts.items()},
            epoch=0,
        )
        report = UpstreamReport(
            output=self.request.output,
            version=self.checkout.version,
            commit=self.checkout.commit,
            triton=self.toolchain.triton_version,
            sandboxed=bool(self.generator.programs.sandbox),
            compiled=self.compiled,
            compile_seconds=self.seconds,
            images=images,
            failed=self.failed,
            left_out=self.left_out,
            packed_bytes=size,
        )
        record = json.dumps(self._record(images), indent=1) + "\n"
        if self.request.record is not None:
            _compare(self.request.record, json.loads(record))
        (staged / RECORD).write_text(record)
        files = [path for path in sorted(staged.rglob("*")) if path.is_file()]
        sums = {path.relative_to(staged).as_posix(): sha256_file(path) for path in files}
        (staged / SUMS).write_bytes(sums_bytes(sums))
        return report

    def _packed(self) -> Iterator[PackedImage]:
        for functional in self.functionals:
            for image, name in functional.images.items():
                job = self.jobs[image]
                made = None if job.key in self.failed else self._images[job.key]
                yield PackedImage(
                    functional=functional.label,
                    entry=name,
                    job=job.key,
                    sha256=made.digest if made else "",
                    resources=made.resources if made else None,
                )

    def _record(self, images: Sequence[PackedImage]) -> dict[str, Any]:
        """What the packs were made of, without time and place."""
        return {
            "record": 1,
            "aotriton": {
                "version": self.checkout.version,
                "commit": self.checkout.commit,
                "tree": self.checkout.tree,
            },
            "archs": self.request.archs,
            "head_dims": self.request.head_dims,
            "only": self.request.only,
            "toolchain": asdict(self.toolchain),
            "images": [asdict(image) for image in images],
            "failed": self.failed,
            "left_out": self.left_out,
        }


def read_recorded(file: Path) -> dict[str, Any]:
    """The record of a build. Raises ReleaseError."""
    try:
        record: dict[str, Any] = json.loads(file.read_bytes())
        if record["record"] != 1:
            raise ValueError("it is of another version")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            f"{file} cannot be read as a record of images: {error}",
            hint="name record.json of ./dev upstream.images",
        ) from error
    return record


def _compare(recorded: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Raises ReleaseError naming what differs."""
    inputs = [name for name in recorded if name != "images" and recorded[name] != made.get(name)]
    pairs = zip(recorded["images"], made["images"], strict=False)
    images = [old["entry"] for old, new in pairs if old != new]
    if inputs or images or len(recorded["images"]) != len(made["images"]):
        raise ReleaseError(
            f"the build differs from the record: {listed(inputs or images or ['the number of images'], 3)}",
            cause="another commit, Triton or selection" if inputs else "a compiler that is not deterministic",
            hint="compare the records: diff -u",
        )


def _launch_values(image: KernelImage) -> dict[str, object]:
    """What the packer reads of an image besides its bytes."""
    return {
        "shared": image.resources.dynamic_shared_bytes,
        "num_warps": image.resources.num_warps,
        "warp_size": image.resources.warp_size,
        "compile_status": "Complete",
    }
