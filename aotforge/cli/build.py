"""Tasks that build and verify images, the library for Windows, and releases."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Output, Result, print_report, print_status
from aotforge.cli.settings import ROOT
from aotforge.cli.values import (
    Arch,
    Cache,
    OnlyNames,
    Profile,
    absolute,
    archs_of,
    cache_folder,
    job_count,
    names,
)
from aotforge.pipeline.requests import (
    BuildRequest,
    PartRequest,
    ReleaseRequest,
    ReproduceRequest,
    VerifyRequest,
    WindowsRequest,
)

if TYPE_CHECKING:
    from aotforge.pipeline.build_record import RecordingObserver
    from aotforge.pipeline.requests import ImagesRequest
    from aotforge.publish.keys import KeySet
    from aotforge.publish.stores.store import ObjectStore


@contextmanager
def observed(request: "ImagesRequest", output: Output) -> "Iterator[RecordingObserver]":
    """An observer that displays progress and records the build for `status`."""
    from aotforge.pipeline.build_record import recorded

    with (
        output.build() as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        yield observer
        observer.end("finished")


@command("build")
def build(request: BuildRequest, output: Output) -> Report:
    """Compile and verify kernels, pack images, build the library, assemble tarballs.

    ./dev build --arch gfx908
    ./dev build --arch MI100,gfx90a --profile quick --output /srv/releases
    """
    from aotforge.pipeline.build_release import build

    with observed(request, output) as observer:
        report = build(request, observer=observer)
        observer.release = str(report.release.folder)
    return report


@command("build.windows")
def build_windows(
    request: WindowsRequest,
    output: Output,
    dl: Annotated[str | None, "instead dl.dll, its import libraries, libdl.a and dlfcn.h, here"] = None,
    forward: Annotated[str | None, "instead a .dll that forwards every call to this one"] = None,
    name: Annotated[str, "with --forward: the name of the new .dll"] = "",
) -> Report:
    """Build the library for Windows as a zip file and a wheel, with images that were built on Linux.

    ./dev build.windows --images releases/dist/0.11.2b-r1
    """
    from aotforge.library.build_windows import build_dl
    from aotforge.library.forwarder import build_forwarder
    from aotforge.pipeline.build_windows import build_windows as build

    if forward:
        made = build_forwarder(Path(forward), name=name, output=request.output or Path(forward).parent)
        files = [str(made.module), str(made.msvc), str(made.gnu)]
        return Result({"files": files, "names": len(made.names)}, files)
    if dl:
        digests = build_dl(ROOT, output=Path(dl))
        lines = [f"{dl}:", *(f"  {digest}  {name}" for name, digest in digests.items())]
        return Result({"folder": dl, "sha256": digests}, lines)
    with output.build() as display:
        return build(request, observer=display)


@command("compile")
def compile_(
    request: PartRequest,
    console: Output,
    output: Annotated[str | None, "instead unpacked packs for CMake: a folder that gets only them"] = None,
) -> Report:
    """Compile and verify images into the caches: all, or a part, which a later build finds there.

    ./dev compile --arch gfx908 --part 1/4 --cache-to s3://BUCKET/cache
    ./dev compile --arch gfx908 --output images
    ./dev compile --arch gfx908 --job JOB
    """
    from aotforge.pipeline.images import build_packs
    from aotforge.pipeline.parts import compile_part

    if request.job:
        return _compile_job(request, request.job)
    with observed(request, console) as observer:
        if not output:
            return compile_part(request, observer=observer)
        folder = Path(output).absolute()
        return Result({"output": str(folder)}, [build_packs(request, folder, observer=observer)])


def _compile_job(request: PartRequest, name: str) -> Result:
    """Compiles one job: its resources, or every error."""
    from tempfile import TemporaryDirectory

    from aotforge.base.progress import LineObserver
    from aotforge.compile.compile_plan import compile_one, find_job
    from aotforge.pipeline.build_release import resolve_targets
    from aotforge.run.step import KERNELS

    executions, plans = resolve_targets(request, (KERNELS,), observer=LineObserver(print_status))
    job = find_job(plans, name)
    with TemporaryDirectory() as scratch:
        image = compile_one(
            job,
            kernels_root=request.kernels,
            architectures=request.checkout.architectures,
            scratch=Path(scratch),
            execution=executions[KERNELS],
        )
    values: dict[str, object] = {"label": job.label, "key": job.key, "digest": image.digest}
    values |= {"bytes": len(image.binary), **asdict(image.resources)}
    return Result(values, [f"{name:18} {value}" for name, value in values.items()])


@command("plan")
def plan(arch: Arch, profile: Profile = None, only: OnlyNames = None) -> Report:
    """List every compile job, in canonical order, without compiling.

    ./dev plan --arch gfx908 --only flash
    """
    import json

    from aotforge.plan.checkout import Checkout
    from aotforge.plan.model import plan_to_json
    from aotforge.plan.planner import plan_project
    from aotforge.plan.selection import Only

    made = plan_project(Checkout(ROOT), archs=archs_of(arch), profile=profile, only=Only(names(only)))
    lines = [
        *(f"{job.key[:12]}  {job.label}" for job in made.jobs),
        *(f"note: {note}" for note in made.notes()),
        "NAME:ARCH:CHOICES:N is the Nth setting of a kernel; with u it serves unaligned tensors too",
        "NAME:ARCH:CHOICES:general serves all calls that no other image of the profile does",
        f"{len(made.jobs)} images for {made.pack}, profile {made.profile}",
    ]
    return Result(json.loads(plan_to_json(made)), lines)


@command("verify")
def verify(
    request: VerifyRequest,
    output: Output,
    html: Annotated[str | None, "write the report to this file as well, as one HTML page"] = None,
) -> Report:
    """Execute every image of a profile or a release on the virtual GPU and compare with float64.

    ./dev verify --arch gfx908 --only softmax
    ./dev verify --release releases/dist/0.11.2b-r1
    """
    from aotforge.base.files import write_atomic
    from aotforge.pipeline.verify_release import verify

    with observed(request, output) as observer:
        report = verify(request, observer=observer)
    if html:
        write_atomic(Path(html).absolute(), report.html().encode())
    passed = partial(report.require_passed, described=not output.json)
    return Result(report.fields(), report.lines(), passed)


@command("demo")
def demo(
    output: Output,
    arch: Arch = "gfx908",
    profile: Annotated[str, "what to build (default: quick)"] = "quick",
    release: Annotated[str | None, "show this release folder instead of a build"] = None,
    cache: Cache = None,
    jobs: Annotated[int | None, "worker processes at most"] = None,
) -> Report:
    """Attention forward and backward by a release's tarballs on virtual GPUs, with the error against float64.

    ./dev demo --arch gfx908
    """
    from aotforge.devtools.demo.run_demo import demo

    request = BuildRequest(
        root=ROOT,
        archs=archs_of(arch),
        profile=profile,
        cache=cache_folder(cache),
        jobs=job_count(jobs),
        environment=dict(os.environ),
    )
    with output.build() as display:
        return demo(request, absolute(release), observer=display)


@command("release")
def make(request: ReleaseRequest, output: Output) -> Report:
    """Build, verify, check, sign and record a release; with --to, publish it.

    ./dev release --version 0.11.2b --arch gfx908 --key key.pem --to s3://BUCKET/PREFIX --keys ~/keys
    ./dev release --version 0.11.2b --arch gfx908 --development --unsigned --executor local --no-windows
    ./dev release --version all --arch gfx906,gfx908 --profile full --key key.pem
    """
    from aotforge.publish.session import open_publisher
    from aotforge.release.model import load_release_manifest

    # store and keys first: what is missing is reported in a second instead of after an hour
    place = None
    if request.to:
        place = open_publisher(request.to, absolute(request.keys), request.environment)
    if request.version != "all":
        return _release(request, place, output)
    values, lines = [], []
    for level in load_release_manifest(ROOT / "manifests" / "release.yaml").api_levels:
        values.append(_level(replace(request, version=level), place, output))
        fields = values[-1]
        size = sum(file["size"] for file in fields["files"]) / 1e6
        made = f"{fields['compiled']} compiled, {fields['executed']} executed, {fields['seconds']} s"
        made = made if fields["compiled"] is not None else "finished before"
        lines.append(f"{fields['release']:11} {size:8.1f} MB  {fields['folder']}: {made}")
        print_status(lines[-1])
    return Result(values, lines)


def _level(
    request: ReleaseRequest, place: "tuple[ObjectStore, KeySet] | None", output: Output
) -> dict[str, Any]:
    """Fields of one level of several, which a run that was interrupted may have finished."""
    from aotforge.pipeline.build_release import file_fields
    from aotforge.pipeline.make_release import finished_before

    began, done = time.monotonic(), finished_before(request)
    if done is None:
        values = cast(dict[str, Any], _release(request, place, output).fields())
        return values | {"seconds": round(time.monotonic() - began)}
    files = file_fields(done.description().files)
    same = {"release": done.name, "folder": str(done.folder), "files": files, "compiled": None}
    return same | ({"publication": _publish(request, done.folder, place, output).values} if place else {})


def _release(request: ReleaseRequest, place: "tuple[ObjectStore, KeySet] | None", output: Output) -> Report:
    """A release of one level, published where there is a place for it."""
    from aotforge.pipeline.make_release import release

    with observed(request, output) as observer:
        report = release(request, observer=observer)
    if not place:
        return report
    if not output.json:
        print_report(report, json=False)
    shown = _publish(request, report.finished.folder, place, output)
    return Result({**report.fields(), "publication": shown.values}, shown.text)


def _publish(
    request: ReleaseRequest, folder: Path, place: "tuple[ObjectStore, KeySet]", output: Output
) -> Result:
    """Sends a finished release; what is there is compared."""
    from aotforge.publish.upload import publish_release

    with output.bytes() as on_progress:
        publication = publish_release(
            folder,
            *place,
            now=datetime.now(UTC),
            dry_run=request.dry_run,
            allow_development=request.development,
            on_progress=on_progress,
        )
    return output.noted(publication, publication.notes)


@command("image")
def image(
    output: Output,
    base: Annotated[str, "a container image whose python3 has PyTorch for ROCm"],
    arch: Arch,
    release: Annotated[
        str | None, "a release folder with wheels (default: a build at the level of the base)"
    ] = None,
    tag: Annotated[str, "name of the new image"] = "aotforge-attention",
    engine: Annotated[str | None, "the first that is installed by default", "docker", "podman"] = None,
    profile: Profile = None,
    cache: Cache = None,
    jobs: Annotated[int | None, "worker processes at most"] = None,
) -> Report:
    """Build a container image: an image with PyTorch for ROCm, and the library and images in it.

    ./dev image --arch gfx906 --base rocm/pytorch:latest
    """
    from aotforge.conformance.matrix import levels_of_names
    from aotforge.deliver.container_image import build_image, needed_names
    from aotforge.pipeline.make_release import release as make_release
    from aotforge.run.engine import open_engine

    archs = archs_of(arch)
    with open_engine(engine) as program:  # podman's ends while a release is built
        level = levels_of_names(ROOT, needed_names(program, base))[0]  # also where --release names a folder
        engine = program.name
    folder = absolute(release)
    if not folder:
        request = ReleaseRequest(
            root=ROOT,
            archs=archs,
            profile=profile,
            cache=cache_folder(cache),
            jobs=job_count(jobs),
            environment=dict(os.environ),
            version=level,
            executor="local",
            windows=False,
            wheels=True,
            unsigned=True,
            development=True,
            output=ROOT / "releases" / "dist" / "image",
        )
        with observed(request, output) as observer:
            folder = make_release(request, observer=observer).finished.folder
    with open_engine(engine) as program:
        return build_image(ROOT, program, folder, base=base, archs=archs, tag=tag)


@command("release.reproduce")
def reproduce(request: ReproduceRequest, output: Output) -> Report:
    """Build a recorded release again, from its commit and an empty cache, and compare every archive.

    ./dev release.reproduce 0.11.2b-r1
    """
    from aotforge.pipeline.reproduce import reproduce

    with output.build() as display:
        return reproduce(request, observer=display)


@command("release.diff")
def diff(before: Annotated[str, "a finished release's folder"], after: Annotated[str, "another"]) -> Report:
    """Differences of two releases: tools, packs, images, resources, verdicts, files."""
    from aotforge.release.compare import compare_releases

    differences = compare_releases(Path(before), Path(after))
    lines = [
        f"{row.kind:9} {row.name}: {row.before or 'missing'} -> {row.after or 'missing'}".replace("\n", "\\n")
        for row in differences
    ]
    return Result([asdict(row) for row in differences], lines or ["nothing differs"])
