"""Tasks that build and verify images, and the library for Windows."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.cli.flags import command
from aotforge.cli.output import (
    Json,
    Output,
    print_checked,
    print_either,
    print_report,
    print_result,
    print_status,
)
from aotforge.cli.settings import ROOT
from aotforge.cli.values import (
    Arch,
    Cache,
    OnlyNames,
    Profile,
    archs_of,
    cache_folder,
    job_count,
    names,
)
from aotforge.pipeline.requests import (
    BuildRequest,
    CachedRequest,
    PacksRequest,
    PartRequest,
    VerifyRequest,
    WindowsRequest,
)

if TYPE_CHECKING:
    from aotforge.pipeline.build_record import RecordingObserver
    from aotforge.pipeline.requests import ImagesRequest


@contextmanager
def observed(request: "ImagesRequest", output: Output) -> "Iterator[RecordingObserver]":
    """An observer that displays progress and records the build for `status`."""
    from aotforge.pipeline.build_record import recorded
    from aotforge.pipeline.display import BuildDisplay

    with (
        BuildDisplay(quiet=output.silent, events=output.events) as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        yield observer


@command("build")
def build(request: BuildRequest, output: Output) -> None:
    """Compile and verify kernels, pack images, build the library, assemble tarballs.

    ./dev build --arch gfx908
    ./dev build --arch MI100,gfx90a --profile quick --output /srv/releases
    """
    from aotforge.pipeline.build_release import build

    with observed(request, output) as observer:
        report = build(request, observer=observer)
        observer.end("finished", release=str(report.release.folder))
    print_report(report, json=output.json)


@command("build.windows")
def build_windows(
    request: WindowsRequest,
    output: Output,
    dl: Annotated[str | None, "instead dl.dll, its import libraries, libdl.a and dlfcn.h, here"] = None,
    forward: Annotated[str | None, "instead a .dll that forwards every call to this one"] = None,
    name: Annotated[str, "with --forward: the name of the new .dll"] = "",
) -> None:
    """Build the library for Windows as a zip file and a wheel, with images that were built on Linux.

    ./dev build.windows --images releases/dist/0.11.2b-r1
    """
    from aotforge.library.build_windows import build_dl
    from aotforge.library.forwarder import build_forwarder
    from aotforge.pipeline.build_windows import build_windows as build
    from aotforge.pipeline.display import BuildDisplay

    if forward:
        made = build_forwarder(Path(forward), name=name, output=request.output or Path(forward).parent)
        files = [str(made.module), str(made.msvc), str(made.gnu)]
        print_either({"files": files, "names": len(made.names)}, files, json=output.json)
    elif dl:
        digests = build_dl(ROOT, output=Path(dl))
        lines = [f"{dl}:", *(f"  {digest}  {name}" for name, digest in digests.items())]
        print_either({"folder": dl, "sha256": digests}, lines, json=output.json)
    else:
        with BuildDisplay(quiet=output.silent, events=output.events) as display:
            report = build(request, observer=display)
        print_report(report, json=output.json)


@command("compile")
def compile_(
    request: PartRequest,
    console: Output,
    job: Annotated[str | None, "instead one job without the cache, by label or key (./dev plan)"] = None,
    output: Annotated[str | None, "instead unpacked packs for CMake: a folder that gets only them"] = None,
    minutes: Annotated[float, "with --output: minutes that one kernel may take; 0: no limit"] = 10.0,
) -> None:
    """Compile and verify images into the caches: all, or a part, which a later build finds there.

    ./dev compile --arch gfx908 --part 1/4 --cache-to s3://BUCKET/cache
    ./dev compile --arch gfx908 --output images
    ./dev compile --arch gfx908 --job JOB
    """
    from aotforge.pipeline.images import build_packs
    from aotforge.pipeline.parts import compile_part

    if job:
        _compile_job(request, job, json=console.json)
        return
    with observed(request, console) as observer:
        if output:
            shared = {field.name: getattr(request, field.name) for field in fields(CachedRequest)}
            packs = PacksRequest(
                **shared, output=Path(output).absolute(), minutes=minutes, verify=request.verify
            )
            made = build_packs(packs, observer=observer)
            values: dict[str, object] = {"output": str(made.output)}
            lines = made.lines()
        else:
            part = compile_part(request, observer=observer)
            lines, values = part.lines(), part.fields()
        observer.end("finished")
    print_either(values, lines, json=console.json)


def _compile_job(request: PartRequest, name: str, *, json: bool) -> None:
    """Compiles one job and prints its resources, or every error."""
    from tempfile import TemporaryDirectory

    from aotforge.base.architectures import load_architectures
    from aotforge.base.progress import LineObserver
    from aotforge.compile.compile_plan import compile_one, find_job, toolchain_of
    from aotforge.plan.planner import plan_project
    from aotforge.run.choose import choose_execution_targets
    from aotforge.run.step import KERNELS

    execution = choose_execution_targets(
        request.executor,
        ROOT,
        cache=request.cache,
        roots=(KERNELS,),
        environment=request.environment,
        observer=LineObserver(print_status),
    ).kernels
    toolchain = toolchain_of(execution, cache=request.cache)
    job = find_job(
        plan_project(request.checkout, archs=request.archs, profile=request.profile, toolchain=toolchain),
        name,
    )
    with TemporaryDirectory() as scratch:
        image = compile_one(
            job,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            scratch=Path(scratch),
            execution=execution,
        )
    values: dict[str, object] = {"label": job.label, "key": job.key, "digest": image.digest}
    values |= {"bytes": len(image.binary), **asdict(image.resources)}
    print_either(values, [f"{name:18} {value}" for name, value in values.items()], json=json)


@command("plan")
def plan(arch: Arch, profile: Profile = None, only: OnlyNames = None, json: Json = False) -> None:
    """List every compile job, in canonical order, without compiling.

    ./dev plan --arch gfx908 --only flash
    """
    from aotforge.plan.checkout import Checkout
    from aotforge.plan.model import plan_to_json
    from aotforge.plan.planner import plan_project
    from aotforge.plan.selection import Only

    made = plan_project(Checkout(ROOT), archs=archs_of(arch), profile=profile, only=Only(names(only)))
    if json:
        print_result(plan_to_json(made))
        return
    for job in made.jobs:
        print_result(f"{job.key[:12]}  {job.label}")
    for note in made.notes():
        print_result(f"note: {note}")
    print_result("NAME:ARCH:CHOICES:N is the Nth setting of a kernel; with u it serves unaligned tensors too")
    print_result("NAME:ARCH:CHOICES:general serves all calls that no other image of the profile does")
    print_result(f"{len(made.jobs)} images for {made.pack}, profile {made.profile}")


@command("verify")
def verify(
    request: VerifyRequest,
    output: Output,
    html: Annotated[str | None, "write the report to this file as well, as one HTML page"] = None,
) -> None:
    """Execute every image of a profile or a release on the virtual GPU and compare with float64.

    ./dev verify --arch gfx908 --only softmax
    ./dev verify --release releases/dist/0.11.2b-r1
    """
    from aotforge.base.files import write_atomic
    from aotforge.pipeline.verify_release import verify

    with observed(request, output) as observer:
        report = verify(request, observer=observer)
        observer.end("finished")
    if html:
        write_atomic(Path(html).absolute(), report.html().encode())
    print_checked(report, partial(report.require_passed, described=not output.json), json=output.json)


@command("demo")
def demo(
    output: Output,
    arch: Arch = "gfx908",
    profile: Annotated[str, "what to build (default: quick)"] = "quick",
    release: Annotated[str | None, "show this release folder instead of a build"] = None,
    cache: Cache = None,
    jobs: Annotated[int | None, "worker processes at most"] = None,
) -> None:
    """Attention forward and backward by a release's tarballs on virtual GPUs, with the error against float64.

    ./dev demo --arch gfx908
    """
    from aotforge.devtools.demo.run_demo import DemoRequest, demo
    from aotforge.pipeline.display import BuildDisplay

    request = BuildRequest(
        root=ROOT,
        archs=archs_of(arch),
        profile=profile,
        cache=cache_folder(cache),
        jobs=job_count(jobs),
        environment=dict(os.environ),
    )
    folder = Path(release).absolute() if release else None
    with BuildDisplay(quiet=output.silent, events=output.events) as display:
        shown = DemoRequest(build=request, release=folder)
        report = demo(shown, observer=display)
    print_checked(report, report.require_passed, json=output.json)
