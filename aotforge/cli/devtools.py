"""Tools for kernel developers: source debugger, costs, virtual devices, the content of image packs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.cli.command import (
    ROOT,
    Arch,
    Cache,
    Json,
    Profile,
    cache_folder,
    cli_command,
    one_arch,
    pairs,
    print_checked,
    print_either,
    print_result,
)

if TYPE_CHECKING:
    from vgpu.cli import CostMeter
    from vgpu.emulator.program import Program

Pack = Annotated[str, "a folder below aotriton.images, a release folder, or a tarball of images"]


@cli_command("debug", positional=["kernel"])
def debug(
    kernel: Annotated[str, "a kernel of kernels/, e.g. attn_fwd or flash.attn_fwd"],
    case: Annotated[
        str | None, "one of its family's cases (default: the first), or the beginning of its name"
    ] = None,
    list: Annotated[bool, "list the cases and stop"] = False,
    arch: Annotated[str, "the arch whose settings are used"] = "gfx908",
    key: Annotated[
        str, "which functional: dtype=fp16,mask=window,width=64 (default: the first of each)"
    ] = "",
    set: Annotated[str, "other constants than the setting's: BLOCK_M=16,BLOCK_N=16"] = "",
    break_: Annotated[
        Sequence[str] | None,
        "stop at FILE.py:LINE of the family (may be repeated); breakpoint() in a kernel also works",
    ] = None,
    program: Annotated[str | None, "stop in this program of the grid only: X,Y,Z"] = None,
    json: Json = False,
) -> None:
    """Run a kernel's Python source on one of its cases under Triton's interpreter and Python's debugger, and compare with float64."""
    from aotforge.devtools import debug_kernel as tool
    from vgpu.emulator.debugger.locations import parse_group

    if list:
        print_either(None, tool.list_cases(ROOT, kernel, pairs(key)), json=False)
        return
    report = tool.debug(
        tool.DebugRequest(
            root=ROOT,
            kernel=kernel,
            arch=one_arch(arch),
            case=case,
            keys=pairs(key),
            constants=pairs(set),
            breaks=tuple(break_ or ()),
            program=parse_group(program) if program else None,
        )
    )
    print_checked(report, report.require_passed, json=json)


@cli_command("cost", positional=["image"])
def cost(
    image: Annotated[
        str,
        "label or first digits of a job's key, or a kernel such as attn_fwd",
    ],
    arch: Arch = "gfx908",
    compare: Annotated[
        Sequence[str] | None, "another image, or another kernel, next to it (may be repeated)"
    ] = None,
    setting: Annotated[
        Sequence[str] | None,
        "the kernel with BLOCK_M=64,num_warps=4 instead of the rules' values (may be repeated: side by side)",
    ] = None,
    profile: Profile = None,
    key: Annotated[
        str, "which functional of a kernel: dtype=fp16,mask=window,width=64 (default: the first of each)"
    ] = "",
    case: Annotated[str | None, "one of the family's cases (see ./dev debug --list)"] = None,
    shape: Annotated[
        str, "a call of this shape: seqlen_q=1024,seqlen_k=1024,heads_q=8 (default: a typical one)"
    ] = "",
    top: Annotated[int, "also list this number of the busiest instructions"] = 0,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Execute an image on the virtual GPU, count its instructions and accesses, and estimate its cycles on the arch."""
    from aotforge.devtools.cost.candidates import CostRequest
    from aotforge.devtools.cost.cost_report import CostReport
    from aotforge.devtools.cost.run_cost import cost as run

    request = CostRequest(
        root=ROOT,
        cache=cache_folder(cache),
        images=(image, *(compare or ())),
        arch=one_arch(arch),
        profile=profile,
        settings=tuple(pairs(text) for text in setting or ()),
        keys=pairs(key),
        case=case,
        shape=pairs(shape),
        top=top,
    )
    report = CostReport(run(request))
    print_either(report.fields(), report.lines(), json=json)


def _launch_cost(program: "Program", hsaco: bytes) -> "CostMeter":
    from aotforge.devtools.cost.cost_report import LaunchCost

    return LaunchCost(program, hsaco)


@cli_command("emulator", forwards=True)
def emulator(arguments: Annotated[Sequence[str], "run, show or list, and its flags"]) -> None:
    """Run a code object on a virtual GPU, stop and inspect it, or list its text."""
    from vgpu.cli import main

    if code := main(arguments, program="./dev emulator", costs=_launch_cost):
        sys.exit(code)


@cli_command("virtual-hip")
def virtual_hip(
    arch: Annotated[str, "virtual devices, e.g. gfx908,gfx942 (default: gfx908)"] = "gfx908",
    asm: Annotated[
        str | None, "assembly texts: folders and .tar.gz archives separated by colons (default: AOTFORGE_ASM)"
    ] = None,
    hip: Annotated[int, "the HIP release to implement: 5, 6 or 7"] = 7,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Print the variables under which any HIP program runs on virtual GPUs: eval "$(./dev virtual-hip)"."""
    from aotforge.base.architectures import find_arch, load_architectures
    from vgpu.cli import virtual_hip as build
    from vgpu.hip.build_hip import exports

    for device in arch.split(","):
        if device != "none":
            find_arch(device.partition("@")[0], load_architectures())  # explains archs without kernels
    variables = build(arch, asm, hip, cache_folder(cache))
    print_either(variables, [exports(variables)], json=json)


@cli_command("images.ls", positional=["pack"])
def images_ls(pack: Pack, json: Json = False) -> None:
    """List the images of a pack and the calls that they serve."""
    from aotforge.deliver.extract import image_packs
    from aotforge.pack.listing import list_images, listing_json, listing_text

    with image_packs(Path(pack).absolute()) as packs:
        images = [image for one in packs for image in list_images(one)]
    print_result((listing_json(images) if json else listing_text(images)).rstrip("\n"))


@cli_command("coverage", positional=["pack"])
def coverage(
    pack: Pack,
    calls: Annotated[
        str | None,
        "a log of a program (AOTRITON_LOG=debug), or a list: attn_fwd dtype=fp16 head_dim=72 mask=window",
    ] = None,
    json: Json = False,
) -> None:
    """The calls that image packs serve, and with --calls which of a program's calls have an image, and why not."""
    from dataclasses import asdict

    from aotforge.deliver.extract import image_packs
    from aotforge.devtools import coverage as tool
    from aotforge.pack.coverage import pack_coverage
    from aotforge.pack.reader import open_pack

    made, refusals = tool.read_calls(Path(calls)) if calls else ({}, {})
    with image_packs(Path(pack).absolute()) as folders:
        packs = [open_pack(folder) for folder in folders]
        tables = [pack_coverage(one) for one in packs]
        found = tool.coverage(made, packs)
    fields = {
        "packs": [asdict(table) for table in tables],
        "calls": [asdict(one) for one in found],
        "refused": dict(refusals),
    }
    print_either(fields, tool.coverage_lines(tables, found, refusals), json=json)


@cli_command("images.cat", positional=["pack", "image"])
def images_cat(
    pack: Pack,
    image: Annotated[str, "SHA-256 of the image, or its first digits (see images.ls)"],
    output: Annotated[str | None, "file to write; standard output if not given and not a terminal"] = None,
) -> None:
    """Write one image (an HSACO code object), decoded and verified without touching the others."""
    from aotforge.base.files import write_atomic
    from aotforge.deliver.extract import image_packs
    from aotforge.errors import OutputError
    from aotforge.pack.listing import cat_image, list_images

    with image_packs(Path(pack).absolute()) as packs:
        wanted = image.lower()
        holders = [
            one
            for one in packs
            if len(packs) > 1 and any(i.digest.startswith(wanted) for i in list_images(one))
        ]
        data = cat_image((holders or packs)[0], image)
    if output:
        write_atomic(Path(output).absolute(), data)
    elif sys.stdout.isatty():
        raise OutputError("an image is binary and standard output is a terminal", hint="add --output FILE")
    else:
        sys.stdout.buffer.write(data)
