"""Tools for kernel developers: source debugger, costs, search of settings."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command, make_request
from aotforge.cli.output import Output, Result, print_status
from aotforge.cli.settings import ROOT
from aotforge.cli.values import Arch, Cache, Profile, cache_folder, one_arch, pairs
from aotforge.errors import UsageError

if TYPE_CHECKING:
    from aotforge.devtools.tune.device_times import OnDevice

Functional = Annotated[str, "which functional: dtype=fp16,mask=window,width=64 (default: the first of each)"]


@command("debug")
def debug(
    kernel: Annotated[str, "a kernel of kernels/, e.g. attn_fwd or flash.attn_fwd"],
    case: Annotated[str | None, "a case of its family (default: the first; see --list)"] = None,
    list_: Annotated[bool, "list the cases and stop"] = False,
    arch: Annotated[str, "the arch whose settings are used"] = "gfx908",
    key: Functional = "",
    set: Annotated[str, "other constants than the setting's: BLOCK_M=16,BLOCK_N=16"] = "",
    break_: Annotated[
        Sequence[str] | None, "stop at FILE.py:LINE (may be repeated), as at breakpoint()"
    ] = None,
    program: Annotated[str | None, "stop in this program of the grid only: X,Y,Z"] = None,
) -> Report:
    """Run a kernel's source on a case under Triton's interpreter and Python's debugger; compare with float64.

    ./dev debug rms_norm --list
    ./dev debug attn_fwd --break attn_fwd.py:60
    """
    from aotforge.devtools import debug_kernel as tool
    from vgpu.emulator.debugger.locations import parse_axes

    if list_:
        cases = list(tool.list_cases(ROOT, kernel, pairs(key)))
        return Result(cases, cases)
    return tool.debug(
        ROOT,
        kernel,
        arch=one_arch(arch),
        case=case,
        keys=pairs(key),
        constants=pairs(set),
        breaks=break_ or (),
        program=parse_axes(program, "--program") if program else None,
    )


@command("cost")
def cost(
    image: Annotated[str, "label or key of a job (first digits do), or a kernel such as attn_fwd"],
    arch: Arch = "gfx908",
    compare: Annotated[Sequence[str] | None, "another image or kernel (may be repeated)"] = None,
    setting: Annotated[
        Sequence[str] | None, "the kernel with other values: BLOCK_M=64,num_warps=4 (may be repeated)"
    ] = None,
    profile: Profile = None,
    key: Functional = "",
    case: Annotated[str | None, "a case of its family (default: the first; see --list)"] = None,
    shape: Annotated[str, "a call of this shape: seqlen_q=1024,seqlen_k=1024,heads_q=8"] = "",
    top: Annotated[int, "also list this number of the busiest instructions"] = 0,
    cache: Cache = None,
) -> Report:
    """Execute an image on the virtual GPU, count instructions and accesses, and estimate its cycles.

    ./dev cost attn_fwd --arch gfx908 --shape seqlen_q=1024,seqlen_k=1024,heads_q=8
    ./dev cost attn_fwd --key dtype=fp16,width=64 --setting BLOCK_M=32 --setting BLOCK_M=64
    """
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
    return CostReport(run(request))


@command("tune")
def tune(
    output: Output,
    kernel: Annotated[str, "a kernel such as attn_fwd, or all: each kernel and functional of the profile"],
    arch: Arch = "gfx908",
    key: Functional = "",
    shape: Annotated[
        Sequence[str] | None, "a call of this shape: seqlen_q=1024,seqlen_k=1024,heads_q=8"
    ] = None,
    budget: Annotated[str, "time after which no further settings are tried: 90s, 20m, 2h"] = "20m",
    device: Annotated[bool, "time settings on a GPU instead of estimates"] = False,
    gpu: Annotated[int | None, "with --device: number of the GPU, as its driver counts"] = None,
    hip: Annotated[str | None, "with --device: path of libamdhip64.so (default: as hardware.check)"] = None,
    drift: Annotated[float, "percent by which the rules' choice may drift in a round"] = 5.0,
    seconds: Annotated[float, "with --device: longest time of one launch, with its copies"] = 60.0,
    write: Annotated[bool, "keep the best setting in manifests/tuning, under `found`"] = False,
    profile: Profile = None,
    cache: Cache = None,
) -> Report:
    """Search settings of a kernel, ranked by the estimate of `./dev cost` or timed on a GPU.

    What is known is not repeated. Shared caches and a cluster are those of aotforge.toml.

      ./dev tune attn_fwd --arch gfx908 --key dtype=fp16,width=64 --budget 20m
      ./dev tune all --arch gfx908 --device --budget 2h --write
    """
    from aotforge.devtools.tune import run_tune as tool
    from aotforge.devtools.tune.cluster_estimates import ClusterEstimates
    from aotforge.devtools.tune.search import Estimates
    from aotforge.pipeline.requests import CachedRequest
    from aotforge.pipeline.shared_cache import cluster_of, shared_objects

    request = tool.TuneRequest(
        root=ROOT,
        cache=cache_folder(cache),
        images=() if kernel == "all" else (kernel,),
        arch=one_arch(arch),
        keys=pairs(key),
        shapes=[pairs(text) for text in shape or ()],
        seconds=_seconds(budget),
        profile=profile,
        device=_on_device(gpu, hip, drift, seconds) if device else None,
        write=write,
    )
    if not request.images and (request.keys or request.shapes):
        raise UsageError(
            "--key and --shape are of one kernel, and none is named",
            hint="./dev tune attn_fwd --key width=64",
        )
    caches = make_request(CachedRequest, {"cache": cache})
    with (
        shared_objects(caches, print_status) as shared,
        cluster_of(caches, print_status) as cluster,
        output.progress_of("tuning") as line,
    ):
        elsewhere = ClusterEstimates(cluster=cluster) if cluster else Estimates()
        request = replace(request, shared=shared, elsewhere=elsewhere)
        return tool.tune(request, observer=line, on_tried=lambda _, done, total: line.update(done, total))


def _on_device(gpu: int | None, hip: str | None, drift: float, seconds: float) -> "OnDevice":
    from aotforge.devtools.tune.device_times import OnDevice, Timing
    from aotforge.verify.device.watchdog import Limits

    if not drift > 0 or not seconds > 0:
        raise UsageError("--drift and --seconds are more than 0", hint="--drift 5 --seconds 60")
    return OnDevice(number=gpu, driver=hip, timing=Timing(drift=drift / 100), limits=Limits(launch=seconds))


def _seconds(text: str) -> float:
    if match := re.fullmatch("0*([1-9][0-9]*)([smh])", text):
        return int(match[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
    raise UsageError(f"--budget {text} is not a valid time", hint="--budget 90s, --budget 20m, --budget 2h")
