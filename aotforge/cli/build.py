"""Tasks that build and verify images, and the pieces of a release that can be built alone."""

import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from aotforge.cli.command import (
    ROOT,
    Arch,
    Cache,
    Json,
    OnlyNames,
    Profile,
    ProgressKind,
    Quiet,
    archs_of,
    cache_folder,
    cli_command,
    job_count,
    names,
    print_checked,
    print_either,
    print_report,
    print_result,
    print_status,
    progress_events,
)
from aotforge.pipeline.requests import (
    BuildRequest,
    Executor,
    PacksRequest,
    PartRequest,
    VerifyRequest,
    WindowsRequest,
)


@cli_command("build")
def build(
    request: BuildRequest, json: Json = False, quiet: Quiet = False, progress: ProgressKind = "auto"
) -> None:
    """Compile and verify kernels, pack images, build the library, assemble tarballs."""
    from aotforge.pipeline.build_record import recorded
    from aotforge.pipeline.build_release import build
    from aotforge.pipeline.display import BuildDisplay

    with (
        BuildDisplay(quiet=quiet or json, events=progress_events(progress, quiet=quiet)) as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        report = build(request, observer=observer)
        observer.end("finished", release=str(report.release.folder))
    print_report(report, json=json)


@cli_command("compile")
def compile_images(
    request: PartRequest, json: Json = False, quiet: Quiet = False, progress: ProgressKind = "auto"
) -> None:
    """Compile and verify a part of a build's images into the caches, where `build` finds them (docs/scale.md)."""
    from aotforge.pipeline.build_record import recorded
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.parts import compile_part

    with (
        BuildDisplay(quiet=quiet or json, events=progress_events(progress, quiet=quiet)) as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        report = compile_part(request, observer=observer)
        observer.end("finished")
    print_either(report.fields(), report.lines(), json=json)


@cli_command("build.windows")
def build_windows(
    request: WindowsRequest, json: Json = False, quiet: Quiet = False, progress: ProgressKind = "auto"
) -> None:
    """Build the library for Windows as a zip file and a wheel, with images that were built on Linux."""
    from aotforge.pipeline.build_windows import build_windows
    from aotforge.pipeline.display import BuildDisplay

    with BuildDisplay(quiet=quiet or json, events=progress_events(progress, quiet=quiet)) as display:
        report = build_windows(request, observer=display)
    print_report(report, json=json)


@cli_command("release.hf-kernel")
def release_hf_kernel(
    release: Annotated[str, "a release folder that this checkout built"], json: Json = False
) -> None:
    """Write a release as a package for Hugging Face's kernels beside it (docs/operator-library.md)."""
    from aotforge.pipeline.hf_package import package_release

    report = package_release(ROOT, Path(release).absolute())
    print_either(report.fields(), report.lines(), json=json)


@cli_command("plan")
def plan(arch: Arch, profile: Profile = None, only: OnlyNames = None, json: Json = False) -> None:
    """List every compile job, in canonical order, without compiling."""
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


@cli_command("compile.job")
def compile_job(
    name: Annotated[str, "label or key of a compile job"],
    arch: Arch,
    profile: Profile = None,
    executor: Executor = "local",
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Compile one job alone, without the cache, and show its resources or every error."""
    from tempfile import TemporaryDirectory

    from aotforge.base.architectures import load_architectures
    from aotforge.base.progress import LineObserver
    from aotforge.compile.compile_plan import compile_one, find_job, toolchain_of
    from aotforge.plan.checkout import Checkout
    from aotforge.plan.planner import plan_project
    from aotforge.run.choose import choose_execution_targets
    from aotforge.run.step import KERNELS

    folder, archs = cache_folder(cache), archs_of(arch)
    execution = choose_execution_targets(
        executor,
        ROOT,
        cache=folder,
        roots=(KERNELS,),
        environment=dict(os.environ),
        observer=LineObserver(print_status),
    ).kernels
    toolchain = toolchain_of(execution, cache=folder)
    job = find_job(plan_project(Checkout(ROOT), archs=archs, profile=profile, toolchain=toolchain), name)
    with TemporaryDirectory() as scratch:
        image = compile_one(
            job,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            scratch=Path(scratch),
            execution=execution,
        )
    fields: dict[str, object] = {
        "label": job.label,
        "key": job.key,
        "digest": image.digest,
        "bytes": len(image.binary),
    }
    fields |= asdict(image.resources)
    print_either(fields, [f"{name:18} {value}" for name, value in fields.items()], json=json)


@cli_command("verify")
def verify(
    request: VerifyRequest,
    html: Annotated[str | None, "write the report to this file as well, as one HTML page"] = None,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Execute every image of a profile or a release on the virtual GPU and compare with float64; missing images are compiled."""
    from aotforge.base.files import write_atomic
    from aotforge.pipeline.build_record import recorded
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.verify_release import verify

    with (
        BuildDisplay(quiet=quiet or json, events=progress_events(progress, quiet=quiet)) as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        report = verify(request, observer=observer)
        observer.end("finished")
    if html:
        write_atomic(Path(html).absolute(), report.html().encode())
    print_checked(report, partial(report.require_passed, described=not json), json=json)


@cli_command("demo")
def demo(
    arch: Arch = "gfx908",
    profile: Annotated[str, "what to build (default: quick)"] = "quick",
    release: Annotated[
        str | None, "a release folder to show, whose library is executed, instead of building one"
    ] = None,
    cache: Cache = None,
    jobs: Annotated[
        int | None, "worker processes at most (default: as many as CPUs and free memory allow)"
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Attention forward and backward by a release's tarballs on virtual GPUs, with the error against float64."""
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
    with BuildDisplay(quiet=quiet or json, events=progress_events(progress, quiet=quiet)) as display:
        shown = DemoRequest(
            build=request,
            release=folder,
        )
        report = demo(shown, observer=display)
    print_checked(report, report.require_passed, json=json)


@cli_command("source.images")
def source_images(request: PacksRequest, quiet: Quiet = False, progress: ProgressKind = "auto") -> None:
    """Image packs alone, unpacked, for a build with cmake (docs/source-route.md)."""
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.images import build_packs

    with BuildDisplay(quiet=quiet, events=progress_events(progress, quiet=quiet)) as display:
        report = build_packs(request, observer=display)
    print_either(None, report.lines(), json=False)


@cli_command("dl.build")
def dl_build(
    output: Annotated[str, "folder for lib/ and include/ (replaced atomically)"],
    json: Json = False,
) -> None:
    """Build dl.dll with its import libraries, libdl.a and dlfcn.h, from runtime/dl."""
    from aotforge.library.build_windows import build_dl

    digests = build_dl(ROOT, output=Path(output))
    lines = [f"{output}:", *(f"  {digest}  {name}" for name, digest in digests.items())]
    print_either({"folder": output, "sha256": digests}, lines, json=json)


@cli_command("dl.forward")
def dl_forward(
    library: Annotated[str, "the .dll that has code and state"],
    name: Annotated[str, "the other name, a .dll"],
    output: Annotated[
        str | None, "folder for the forwarder and its import libraries (default: the library's)"
    ] = None,
    json: Json = False,
) -> None:
    """Make a .dll of another name that forwards every call to LIBRARY, so that both names share one state."""
    from aotforge.library.forwarder import build_forwarder

    source = Path(library)
    made = build_forwarder(source, name=name, output=Path(output) if output else source.parent)
    files = [str(made.module), str(made.msvc), str(made.gnu)]
    print_either({"files": files, "names": len(made.names)}, files, json=json)
