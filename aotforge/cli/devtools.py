"""Tools for those who write kernels: source debugger, costs, virtual devices."""

from __future__ import annotations

import json as json_
import os
from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import ARCH, JSON, PROFILE, ROOT, cache_folder, door, pairs, say


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
        "json": JSON,
    },
)
@door
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
    from aotforge.devtools import debug_kernel as room  # noqa: PLC0415
    from aotforge.virtual_gpu.emulator.debugger.locations import parse_group  # noqa: PLC0415

    if list:
        for name in room.list_cases(ROOT, kernel, pairs(key)):
            say(name)
        return
    report = room.debug(
        room.DebugRequest(
            root=ROOT, kernel=kernel, arch=arch, case=case, keys=pairs(key), constants=pairs(set),
            breaks=tuple(break_ or ()), program=parse_group(program) if program else None,
        )
    )  # fmt: skip
    say(json_.dumps(room.report_fields(report), indent=1) if json else "\n".join(room.report_lines(report)))
    room.require_passed(report)


@task(
    positional=["image"],
    iterable=["compare", "setting"],
    help={
        "image": "label or first digits of a job's key, first digits of an image's digest, or a kernel such as attn_fwd",
        "compare": "another image, or another kernel, beside it (may be repeated)",
        "setting": "the kernel with BLOCK_M=64,num_warps=4 instead of the rules' values (may be repeated: side by side)",
        "arch": ARCH,
        "profile": PROFILE,
        "key": "which functional of a kernel: dtype=fp16,head_dim=64,causal=true (default: the first of each)",
        "case": "one of the family's cases (see invoke debug --list)",
        "shape": "a call of this shape: seqlen_q=1024,seqlen_k=1024,heads_q=8 (default: a typical one)",
        "top": "also list so many of the busiest instructions",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
    },
)
@door
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
    from aotforge.devtools.cost import cost_report as report  # noqa: PLC0415
    from aotforge.devtools.cost.run_cost import CostRequest  # noqa: PLC0415
    from aotforge.devtools.cost.run_cost import cost as run  # noqa: PLC0415

    costs = run(
        CostRequest(
            root=ROOT, cache=cache_folder(cache), images=(image, *(compare or ())), arch=arch, profile=profile,
            settings=tuple(pairs(text) for text in setting or ()), keys=pairs(key), case=case, shape=pairs(shape), top=top,
        )
    )  # fmt: skip
    say(json_.dumps(report.fields(costs), indent=1) if json else "\n".join(report.lines(costs)))


@task(
    help={
        "arch": "virtual devices, e.g. gfx908,gfx942 (default: gfx908)",
        "asm": "assembly texts: folders and .tar.gz archives joined by colons (default: AOTFORGE_ASM)",
        "hip": "the HIP release to play: 5, 6 or 7",
        "cache": "folder of images and emulated programs (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
    }
)
@door
def virtual_hip(
    c: Context,
    arch: str = "gfx908",
    asm: str | None = None,
    hip: int = 7,
    cache: str | None = None,
    json: bool = False,
) -> None:
    """Print the variables under which any HIP program runs on virtual GPUs: eval "$(./dev virtual-hip)"."""
    from aotforge.virtual_gpu.hip.build_hip import build_virtual_hip, environment, exports  # noqa: PLC0415

    folder, texts = cache_folder(cache), (asm or os.environ.get("AOTFORGE_ASM") or "").split(":")
    variables = environment(
        build_virtual_hip(folder, major=hip),
        devices=arch.split(","),
        texts=[Path(text) for text in texts if text],
        cache=folder,
    )
    say(json_.dumps(variables, indent=1) if json else exports(variables))


TASKS = (("", "debug", debug), ("", "cost", cost), ("", "virtual-hip", virtual_hip))
