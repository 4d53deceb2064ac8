"""The front door: each task reads its flags, calls one function and prints. No logic lives here."""

from __future__ import annotations

import functools
import json as json_
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

ROOT = Path(__file__).resolve().parent
HOME = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from aotforge.errors import AotforgeError  # noqa: E402


def _door(body: Callable[..., None]) -> Callable[..., None]:
    """Errors become a message on stderr (JSON on stdout with --json) and their kind's exit code."""

    @functools.wraps(body)
    def run(*args: Any, **flags: Any) -> None:
        try:
            body(*args, **flags)
        except AotforgeError as error:
            if flags.get("json"):
                fields = {"kind": error.kind, "what": error.what, "cause": error.cause, "hint": error.hint}
                _print(json_.dumps({"error": fields}))
            sys.stderr.write(f"error: {error}\n")
            raise Exit(code=error.exit_code) from error
        except KeyboardInterrupt:
            sys.stderr.write("interrupted; what is finished is kept, the same command goes on from there\n")
            raise Exit(code=130) from None

    return run


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _cache(folder: str | None) -> Path:
    return Path(folder or os.environ.get("AOTFORGE_CACHE") or HOME / "cache").absolute()


def _pack(path: str) -> Path:
    return Path(path).absolute()


def _jobs(count: int) -> int | None:
    """Raises UnsupportedError for fewer than none."""
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    if count < 0:
        raise UnsupportedError(
            f"--jobs {count} is no number of processes", hint="leave it out, or at least 1"
        )
    return count or None


_ARCH = "chip, e.g. gfx908; several are joined by commas"
_PROFILE = "what to build: see manifests/profiles.yaml"
_JSON = "print JSON for programs"


@task(
    help={
        "arch": _ARCH,
        "profile": _PROFILE,
        "jobs": "worker processes at most (default: as many as CPUs and free memory allow)",
        "output": "folder that gets <release>/ (default: releases/dist, or releases/dist/<profile> for incomplete ones)",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "verify": "execute every image on the virtual GPU; without, the release is a development build and says so",
        "json": _JSON,
        "quiet": "no progress and no notes",
    }
)
@_door
def build(
    c: Context,
    arch: str,
    profile: str | None = None,
    jobs: int = 0,
    output: str | None = None,
    cache: str | None = None,
    verify: bool = True,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Compile and verify kernels, pack images, build the library, assemble tarballs."""
    from aotforge.build import BuildRequest, build, report_fields, report_lines  # noqa: PLC0415
    from aotforge.ui import build_display  # noqa: PLC0415

    request = BuildRequest(
        root=ROOT,
        archs=tuple(arch.split(",")),
        profile=profile,
        output=Path(output).absolute() if output else None,
        cache=_cache(cache),
        jobs=_jobs(jobs),
        verify=verify,
        environment=dict(os.environ),
    )
    with build_display(quiet=quiet or json) as display:
        report = build(request, on_stage=display.stage, on_event=display.event, on_verdict=display.verdict)
    lines = [json_.dumps(report_fields(report), indent=1)] if json else report_lines(report)
    for line in lines:
        _print(line)


@task(help={"arch": _ARCH, "profile": _PROFILE, "json": _JSON})
@_door
def plan(c: Context, arch: str, profile: str | None = None, json: bool = False) -> None:
    """List every compile job, in canonical order, without compiling."""
    from aotforge.plan import plan_project, plan_to_json  # noqa: PLC0415

    made = plan_project(ROOT, archs=arch.split(","), profile=profile)
    if json:
        _print(plan_to_json(made))
        return
    for job in made.jobs:
        _print(f"{job.key[:12]}  {job.label}")
    _print(f"{len(made.jobs)} images for {made.pack}, profile {made.profile}")


@task(help={"name": "label or key of a compile job", "arch": _ARCH, "profile": _PROFILE, "json": _JSON})
@_door
def compile_job(c: Context, name: str, arch: str, profile: str | None = None, json: bool = False) -> None:
    """Compile one job alone, past the cache, and show its resources or everything that goes wrong."""
    from dataclasses import asdict  # noqa: PLC0415
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from aotforge.compile import compile_one, find_job  # noqa: PLC0415
    from aotforge.manifests import load_architectures  # noqa: PLC0415
    from aotforge.plan import plan_project  # noqa: PLC0415

    job = find_job(plan_project(ROOT, archs=arch.split(","), profile=profile), name)
    with TemporaryDirectory() as scratch:
        image = compile_one(
            job,
            kernels_root=ROOT / "kernels",
            architectures=load_architectures(ROOT / "manifests"),
            scratch=Path(scratch),
        )
    fields = {"label": job.label, "key": job.key, "digest": image.digest, "bytes": len(image.hsaco)}
    fields |= asdict(image.resources)
    _print(json_.dumps(fields, indent=1) if json else "\n".join(f"{k:18} {v}" for k, v in fields.items()))


@task(
    help={
        "arch": _ARCH,
        "profile": _PROFILE,
        "release": "verify what lies in this release folder, from its own archives (--arch then chooses among its chips)",
        "jobs": "processes at most (default: as many as CPUs)",
        "cache": "folder of compiled images and verdicts (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "html": "write the report to this file as well, as one HTML page",
        "json": _JSON,
        "quiet": "no progress",
    }
)
@_door
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
    from aotforge.files import write_atomic  # noqa: PLC0415
    from aotforge.ui import build_display  # noqa: PLC0415
    from aotforge.verify import report_html, report_json, report_text, require_passed  # noqa: PLC0415
    from aotforge.verify_images import VerifyRequest, verify  # noqa: PLC0415

    request = VerifyRequest(
        root=ROOT, archs=tuple(arch.split(",")) if arch else (), profile=profile,
        release=Path(release).absolute() if release else None, cache=_cache(cache), jobs=_jobs(jobs),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        report = verify(request, on_event=display.event, on_verdict=display.verdict)
    if html:
        write_atomic(Path(html).absolute(), report_html(report).encode())
    _print((report_json(report) if json else report_text(report)).rstrip("\n"))
    require_passed(report)


@task(positional=["pack"], help={"pack": "a folder below aotriton.images", "json": _JSON})
@_door
def images_ls(c: Context, pack: str, json: bool = False) -> None:
    """List the images of a pack and the calls that they serve."""
    from aotforge.pack import list_images, listing_json, listing_text  # noqa: PLC0415

    images = list_images(_pack(pack))
    _print((listing_json(images) if json else listing_text(images)).rstrip("\n"))


@task(
    positional=["pack", "image"],
    help={
        "pack": "a folder below aotriton.images",
        "image": "SHA-256 of the image, or its first digits (see images.ls)",
        "output": "file to write; standard output if not given and not a terminal",
    },
)
@_door
def images_cat(c: Context, pack: str, image: str, output: str | None = None) -> None:
    """Write one image (an HSACO code object), decoded and verified without touching the others."""
    from aotforge.errors import OutputError  # noqa: PLC0415
    from aotforge.files import write_atomic  # noqa: PLC0415
    from aotforge.pack import cat_image  # noqa: PLC0415

    data = cat_image(_pack(pack), image)
    if output:
        write_atomic(Path(output).absolute(), data)
    elif sys.stdout.isatty():
        raise OutputError("an image is binary and standard output is a terminal", hint="add --output FILE")
    else:
        sys.stdout.buffer.write(data)


def _run(command: Sequence[str]) -> int:
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


@task(
    help={
        "slow": "also the sweeps that take minutes",
        "only": "a folder or file below tests/, or a pytest node",
        "jobs": "test processes (default 2)",
    }
)
def test(c: Context, slow: bool = False, only: str = "tests", jobs: int = 2) -> None:
    """Run the test suite."""
    command = [sys.executable, "-m", "pytest", only, "-q", "-n", str(jobs), "--dist", "worksteal"]
    raise Exit(code=_run(command if slow else [*command, "-m", "not slow"]))


@task
def lint(c: Context) -> None:
    """Formatting, lint and strict types."""
    for tool in (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]):
        code = _run([sys.executable, "-m", *tool])
        if code:
            raise Exit(code=code)


@task(help={"name": "one benchmark, e.g. pack_size (default: all)"})
def bench(c: Context, name: str | None = None) -> None:
    """Measure speed and size as ratios against peers; see docs/benchmarks.md."""
    found = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
    if name and name not in found:
        raise Exit(f"unknown benchmark {name}; known: {', '.join(found)}", code=10)
    for stem in [name] if name else found:
        code = _run([sys.executable, "-m", f"benchmarks.{stem}"])
        if code:
            raise Exit(code=code)


@task(
    help={
        "arch": _ARCH,
        "profile": "what to build (default: quick)",
        "release": "a release folder to show instead of building one",
        "cache": "folder of images and emulated programs (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "jobs": "compile processes at most (default: as many as CPUs and free memory allow)",
        "json": _JSON,
        "quiet": "no progress",
    }
)
@_door
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
    from aotforge.build import BuildRequest  # noqa: PLC0415
    from aotforge.demo import DemoRequest, demo, report_json, report_text, require_right  # noqa: PLC0415
    from aotforge.ui import build_display  # noqa: PLC0415

    request = BuildRequest(
        root=ROOT, archs=tuple(arch.split(",")), profile=profile, output=None, cache=_cache(cache), jobs=_jobs(jobs),
        environment=dict(os.environ),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        report = demo(
            DemoRequest(build=request, release=Path(release).absolute() if release else None),
            on_stage=display.stage,
            on_event=display.event,
            on_verdict=display.verdict,
        )
    _print(report_json(report) if json else report_text(report))
    require_right(report)


@task(
    help={
        "arch": "virtual devices, e.g. gfx908,gfx942 (default: gfx908)",
        "asm": "assembly texts: folders and .tar.gz archives joined by colons (default: AOTFORGE_ASM)",
        "hip": "the HIP release to play: 5, 6 or 7",
        "cache": "folder of images and emulated programs (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": _JSON,
    }
)
@_door
def virtual_hip(
    c: Context,
    arch: str = "gfx908",
    asm: str | None = None,
    hip: int = 7,
    cache: str | None = None,
    json: bool = False,
) -> None:
    """Print the variables under which any HIP program runs on virtual GPUs: eval "$(./dev virtual-hip)"."""
    from aotforge.virtual_hip import build_virtual_hip, environment, exports  # noqa: PLC0415

    folder, texts = _cache(cache), (asm or os.environ.get("AOTFORGE_ASM") or "").split(":")
    variables = environment(
        build_virtual_hip(folder, major=hip),
        devices=arch.split(","),
        texts=[Path(text) for text in texts if text],
        cache=folder,
    )
    _print(json_.dumps(variables, indent=1) if json else exports(variables))


@task(
    positional=["kernel"],
    iterable=["break_"],
    help={
        "kernel": "a kernel of kernels/, e.g. attn_fwd or flash.attn_fwd",
        "case": "one of its family's cases (default: the first), or the beginning of its name",
        "list": "list the cases and stop",
        "arch": "the chip whose settings are used",
        "key": "which functional: dtype=fp16,head_dim=64,causal=true (default: the first of each)",
        "set": "other constants than the setting's: BLOCK_M=16,BLOCK_N=16",
        "break_": "stop at FILE.py:LINE of the family (may be repeated); breakpoint() in a kernel works too",
        "program": "stop in this program of the grid only: X,Y,Z",
        "json": _JSON,
    },
)
@_door
def debug(
    c: Context,
    kernel: str,
    case: str | None = None,
    list: bool = False,
    arch: str = "gfx908",
    key: str = "",
    set: str = "",
    break_: Sequence[str] | None = None,
    program: str | None = None,
    json: bool = False,
) -> None:
    """Run a kernel's Python source on one of its cases under Triton's interpreter and Python's debugger, and compare with float64."""
    from aotforge import debug as room  # noqa: PLC0415
    from aotforge.emulator.debugger.places import parse_group  # noqa: PLC0415

    if list:
        for name in room.list_cases(ROOT, kernel, _pairs(key)):
            _print(name)
        return
    report = room.debug(
        room.DebugRequest(
            root=ROOT, kernel=kernel, arch=arch, case=case, keys=_pairs(key), constants=_pairs(set),
            breaks=tuple(break_ or ()), program=parse_group(program) if program else None,
        )
    )  # fmt: skip
    _print(
        json_.dumps(room.report_fields(report), indent=1) if json else "\n".join(room.report_lines(report))
    )
    room.require_right(report)


@task(
    positional=["image"],
    iterable=["compare", "setting"],
    help={
        "image": "label or first digits of a job's key, first digits of an image's digest, or a kernel such as attn_fwd",
        "compare": "another image, or another kernel, beside it (may be repeated)",
        "setting": "the kernel with BLOCK_M=64,num_warps=4 instead of the rules' values (may be repeated: side by side)",
        "arch": _ARCH,
        "profile": _PROFILE,
        "key": "which functional of a kernel: dtype=fp16,head_dim=64,causal=true (default: the first of each)",
        "case": "one of the family's cases (see invoke debug --list)",
        "shape": "a call of this shape: seqlen_q=1024,seqlen_k=1024,heads_q=8 (default: a typical one)",
        "top": "also list so many of the busiest instructions",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": _JSON,
    },
)
@_door
def cost(
    c: Context,
    image: str,
    arch: str = "gfx908",
    compare: Sequence[str] | None = None,
    setting: Sequence[str] | None = None,
    profile: str | None = None,
    key: str = "",
    case: str | None = None,
    shape: str = "",
    top: int = 0,
    cache: str | None = None,
    json: bool = False,
) -> None:
    """Execute an image on the virtual GPU, count what it does, and estimate its cycles on the chip."""
    from aotforge.cost import report  # noqa: PLC0415
    from aotforge.cost.run import CostRequest  # noqa: PLC0415
    from aotforge.cost.run import cost as run  # noqa: PLC0415

    costs = run(
        CostRequest(
            root=ROOT, cache=_cache(cache), images=(image, *(compare or ())), arch=arch, profile=profile,
            settings=tuple(_pairs(text) for text in setting or ()), keys=_pairs(key), case=case, shape=_pairs(shape), top=top,
        )
    )  # fmt: skip
    _print(json_.dumps(report.fields(costs), indent=1) if json else "\n".join(report.lines(costs)))


def _pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` as a table. Raises UnsupportedError."""
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and sign and value for name, sign, value in parts):
        raise UnsupportedError(f"{text!r} is not understood", hint="NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in parts}


namespace = Collection(build, plan, verify, debug, cost, demo, virtual_hip, test, lint, bench)
for _group, _name, _task in (
    ("compile", "job", compile_job),
    ("images", "ls", images_ls),
    ("images", "cat", images_cat),
):
    if _group not in namespace.collections:
        namespace.add_collection(Collection(_group))
    namespace.collections[_group].add_task(_task, name=_name)
