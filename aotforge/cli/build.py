"""Tasks that walk through the rooms: plan, compile, verify, assemble, show."""

from __future__ import annotations

import json as json_
import os
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import (
    ARCH,
    EXECUTOR,
    JSON,
    PROFILE,
    ROOT,
    archs_of,
    cache_folder,
    door,
    job_count,
    say,
    say_aside,
)


@task(
    help={
        "arch": ARCH,
        "profile": PROFILE,
        "jobs": "worker processes at most (default: as many as CPUs and free memory allow)",
        "output": "folder that gets <release>/ (default: releases/dist, or releases/dist/<profile> for incomplete ones)",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "platform": "linux, or windows: the library alone as a zip file, with --images also images that were built on Linux",
        "images": "for --platform windows: tarball of images, pack folder or release folder; several are joined by commas",
        "verify": "execute every image on the virtual GPU; without, the release is a development build and says so",
        "executor": EXECUTOR,
        "keep": "leave a container whose step failed, and say how to enter it",
        "shard": "make one part of the release only: shard NUMBER/COUNT of its images, or `runtime`; --output gets the part's file",
        "gather": "assemble the release from the parts in this folder; nothing is compiled or executed",
        "json": JSON,
        "quiet": "no progress and no notes",
    }
)
@door
def build(
    c: Context,
    arch: str | None = None,
    profile: str | None = None,
    jobs: int = 0,
    output: str | None = None,
    cache: str | None = None,
    platform: str = "linux",
    images: str | None = None,
    verify: bool = True,
    executor: str = "local",
    keep: bool = False,
    shard: str | None = None,
    gather: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Compile and verify kernels, pack images, build the library, assemble tarballs."""
    from aotforge.pipeline.build_windows import check_platform  # noqa: PLC0415

    check_platform(platform, arch=arch, profile=profile, images=images)
    if platform == "windows":
        _build_windows(
            images,
            output=output,
            cache=cache,
            jobs=jobs,
            executor=executor,
            keep=keep,
            json=json,
            quiet=quiet,
        )
        return
    from aotforge.pipeline.build_release import BuildRequest, build, report_fields, report_lines  # noqa: PLC0415
    from aotforge.pipeline.display import build_display  # noqa: PLC0415

    request = BuildRequest(
        root=ROOT,
        archs=archs_of(arch),
        profile=profile,
        output=Path(output).absolute() if output else None,
        cache=cache_folder(cache),
        jobs=job_count(jobs),
        verify=verify,
        executor=executor,
        keep=keep,
        environment=dict(os.environ),
    )
    with build_display(quiet=quiet or json) as display:
        if shard or gather:
            from aotforge.pipeline.shards.shard_command import run_parts  # noqa: PLC0415

            parts = run_parts(
                request, shard=shard, gather_from=Path(gather).absolute() if gather else None, observer=display,
            )  # fmt: skip
            fields, told = parts.fields(), parts.lines()
        else:
            report = build(
                request,
                observer=display,
            )
            fields, told = report_fields(report), report_lines(report)
    lines = [json_.dumps(fields, indent=1)] if json else told
    for line in lines:
        say(line)


def _build_windows(
    images: str | None,
    *,
    output: str | None,
    cache: str | None,
    jobs: int,
    executor: str,
    keep: bool,
    json: bool,
    quiet: bool,
) -> None:
    from aotforge.pipeline.build_windows import (  # noqa: PLC0415
        WindowsRequest,
        build_windows,
        report_fields,
        report_lines,
    )
    from aotforge.pipeline.display import build_display  # noqa: PLC0415

    request = WindowsRequest(
        root=ROOT,
        output=Path(output).absolute() if output else None,
        cache=cache_folder(cache),
        jobs=job_count(jobs),
        images=tuple(Path(name) for name in images.split(",")) if images else (),
        executor=executor,
        keep=keep,
        environment=dict(os.environ),
    )
    with build_display(quiet=quiet or json) as display:
        report = build_windows(request, observer=display)
    for line in [json_.dumps(report_fields(report), indent=1)] if json else report_lines(report):
        say(line)


@task(help={"arch": ARCH, "profile": PROFILE, "json": JSON})
@door
def plan(c: Context, arch: str, profile: str | None = None, json: bool = False) -> None:
    """List every compile job, in canonical order, without compiling."""
    from aotforge.plan.planner import plan_project  # noqa: PLC0415
    from aotforge.plan.serial import plan_to_json  # noqa: PLC0415

    made = plan_project(ROOT, archs=archs_of(arch), profile=profile)
    if json:
        say(plan_to_json(made))
        return
    for job in made.jobs:
        say(f"{job.key[:12]}  {job.label}")
    say(f"{len(made.jobs)} images for {made.pack}, profile {made.profile}")


@task(
    help={
        "name": "label or key of a compile job",
        "arch": ARCH,
        "profile": PROFILE,
        "executor": EXECUTOR,
        "keep": "leave a container whose step failed, and say how to enter it",
        "cache": "cache folder with the containers' roots (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
    }
)
@door
def compile_job(
    c: Context,
    name: str,
    arch: str,
    profile: str | None = None,
    executor: str = "local",
    keep: bool = False,
    cache: str | None = None,
    json: bool = False,
) -> None:
    """Compile one job alone, past the cache, and show its resources or everything that goes wrong."""
    from dataclasses import asdict  # noqa: PLC0415
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from aotforge.base.architectures import load_architectures  # noqa: PLC0415
    from aotforge.base.progress import LineObserver  # noqa: PLC0415
    from aotforge.compile.compile_plan import compile_one, find_job, toolchain_of  # noqa: PLC0415
    from aotforge.plan.planner import plan_project  # noqa: PLC0415
    from aotforge.sandbox.executors.choose import choose_execution_targets  # noqa: PLC0415
    from aotforge.sandbox.executors.step import KERNELS  # noqa: PLC0415

    kept = cache_folder(cache)
    execution = choose_execution_targets(
        executor,
        ROOT,
        roots=(KERNELS,),
        cache=kept,
        keep=keep,
        environment=dict(os.environ),
        observer=LineObserver(say_aside),
    ).kernels
    toolchain = toolchain_of(execution, cache=kept)
    job = find_job(plan_project(ROOT, archs=archs_of(arch), profile=profile, toolchain=toolchain), name)
    with TemporaryDirectory() as scratch:
        image = compile_one(
            job,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            scratch=Path(scratch),
            execution=execution,
        )
    fields = {"label": job.label, "key": job.key, "digest": image.digest, "bytes": len(image.hsaco)}
    fields |= asdict(image.resources)
    say(json_.dumps(fields, indent=1) if json else "\n".join(f"{k:18} {v}" for k, v in fields.items()))


@task(
    help={
        "arch": ARCH,
        "profile": PROFILE,
        "release": "verify what lies in this release folder, from its own archives (--arch then chooses among its chips)",
        "jobs": "processes at most (default: as many as CPUs)",
        "cache": "folder of compiled images and verdicts (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "html": "write the report to this file as well, as one HTML page",
        "json": JSON,
        "quiet": "no progress",
    }
)
@door
def verify(
    c: Context,
    arch: str | None = None,
    profile: str | None = None,
    release: str | None = None,
    jobs: int = 0,
    cache: str | None = None,
    html: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Execute every image of a profile or a release on the virtual GPU and compare with float64; compiles what is missing."""
    from aotforge.base.files import write_atomic  # noqa: PLC0415
    from aotforge.pipeline.display import build_display  # noqa: PLC0415
    from aotforge.pipeline.verify_release import VerifyRequest, verify  # noqa: PLC0415

    request = VerifyRequest(
        root=ROOT, archs=archs_of(arch), profile=profile,
        release=Path(release).absolute() if release else None, cache=cache_folder(cache), jobs=job_count(jobs),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        report = verify(request, observer=display)
    if html:
        write_atomic(Path(html).absolute(), report.html().encode())
    say(json_.dumps(report.fields(), indent=1) if json else "\n".join(report.lines()))
    report.require_passed()


@task(
    help={
        "arch": ARCH,
        "profile": "what to build (default: quick)",
        "release": "a release folder to show instead of building one",
        "cache": "folder of images and emulated programs (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "jobs": "compile processes at most (default: as many as CPUs and free memory allow)",
        "json": JSON,
        "quiet": "no progress",
    }
)
@door
def demo(
    c: Context,
    arch: str = "gfx908",
    profile: str = "quick",
    release: str | None = None,
    cache: str | None = None,
    jobs: int = 0,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Attention forward and backward by a release's tarballs on virtual GPUs, with the error against float64."""
    from aotforge.devtools.demo.demo_text import report_json, report_text, require_passed  # noqa: PLC0415
    from aotforge.devtools.demo.run_demo import DemoRequest, demo  # noqa: PLC0415
    from aotforge.pipeline.build_release import BuildRequest  # noqa: PLC0415
    from aotforge.pipeline.display import build_display  # noqa: PLC0415

    request = BuildRequest(
        root=ROOT, archs=archs_of(arch), profile=profile, output=None, cache=cache_folder(cache), jobs=job_count(jobs),
        environment=dict(os.environ),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        report = demo(
            DemoRequest(build=request, release=Path(release).absolute() if release else None),
            observer=display,
        )
    say(report_json(report) if json else report_text(report))
    require_passed(report)


TASKS = (
    ("", "build", build),
    ("", "plan", plan),
    ("compile", "job", compile_job),
    ("", "verify", verify),
    ("", "demo", demo),
)
