"""The task `tune`: settings of kernels, by estimates or on a GPU of this machine."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from aotforge.cli.command import (
    ROOT,
    Arch,
    Cache,
    Json,
    Profile,
    ProgressKind,
    absolute,
    cache_folder,
    cli_command,
    one_arch,
    pairs,
    print_either,
    print_status,
    progress_events,
)
from aotforge.errors import UsageError

if TYPE_CHECKING:
    from aotforge.devtools.tune.run_tune import OnDevice, TuneRequest
    from aotforge.devtools.tune.search import Estimates
    from aotforge.pipeline.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class TimedFlags:
    """Flags of times on a GPU."""

    device: Annotated[bool, "time settings on a GPU of the arch in this machine, instead of estimates"] = (
        False
    )
    gpu: Annotated[int | None, "with --device: number of the GPU, as its driver counts"] = None
    hip: Annotated[str | None, "with --device: path of libamdhip64.so (default: as hardware.check)"] = None
    drift: Annotated[
        float,
        "with --device: percent by which the rules' choice may drift in a round before that is repeated",
    ] = 5.0
    seconds: Annotated[float, "with --device: longest time of one launch, with its copies"] = 60.0


@dataclass(frozen=True, kw_only=True)
class PlaceFlags:
    """Flags of shared caches and of a cluster."""

    cache_from: Annotated[str | None, "shared cache to read estimates from, as for build"] = None
    cache_to: Annotated[str | None, "shared cache to read from and to write to, as for build"] = None
    cache_root: Annotated[str | None, "root of trust of the cache to read from, a file"] = None
    cache_keys: Annotated[str | None, "folder of the keys of the cache to write to"] = None
    scheduler: Annotated[
        str | None,
        "Dask scheduler whose workers estimate settings: tls://HOST:PORT (default: AOTFORGE_SCHEDULER)",
    ] = None


@cli_command("tune", positional=["kernel"])
def tune(
    timed: TimedFlags,
    places: PlaceFlags,
    kernel: Annotated[
        str | None, "a kernel such as attn_fwd (default: each kernel and functional of the profile)"
    ] = None,
    arch: Arch = "gfx908",
    key: Annotated[
        str, "which functional of a kernel: dtype=fp16,mask=window,width=64 (default: the first of each)"
    ] = "",
    shape: Annotated[
        Sequence[str] | None,
        "calls to estimate or time: seqlen_q=1024,seqlen_k=1024,heads_q=8 (default: a typical one; may be repeated)",
    ] = None,
    budget: Annotated[str, "time after which no further settings are tried: 90s, 20m, 2h"] = "20m",
    write: Annotated[bool, "keep the best setting in manifests/tuning, under `found`"] = False,
    profile: Profile = None,
    cache: Cache = None,
    json: Json = False,
    progress: ProgressKind = "auto",
) -> None:
    """Search settings of a kernel, or of all, ranked by the estimate of `./dev cost` or timed on a GPU; what is known is not repeated."""
    from dataclasses import replace

    from aotforge.base import progress as display
    from aotforge.devtools.tune import run_tune as tool
    from aotforge.pipeline.requests import CachedRequest
    from aotforge.pipeline.shared_cache import cluster_of, shared_objects

    request = tool.TuneRequest(
        root=ROOT,
        cache=cache_folder(cache),
        kernel=kernel,
        arch=one_arch(arch),
        keys=pairs(key),
        shapes=[pairs(text) for text in shape or ()],
        seconds=_seconds(budget),
        profile=profile,
        device=_on_device(timed) if timed.device else None,
        write=write,
    )
    _check(request, scheduler=places.scheduler)
    events = progress_events(progress)
    folders = {"cache_root": absolute(places.cache_root), "cache_keys": absolute(places.cache_keys)}
    caches = CachedRequest(
        root=ROOT, cache=request.cache, environment=os.environ, **{**vars(places), **folders}
    )
    with (
        shared_objects(caches, print_status) as shared,
        cluster_of(caches, print_status) as cluster,
        display.progress("tuning", quiet=json, events=events) as line,
    ):
        request = replace(request, shared=shared, elsewhere=_on_cluster(cluster) if cluster else None)
        found = tool.tune(request, observer=line, on_tried=lambda one, done, total: line.update(done, total))
    print_either(found.fields(), found.lines(), json=json)


def _check(request: "TuneRequest", *, scheduler: str | None) -> None:
    """Raises UsageError for flags that do not fit together."""
    if request.kernel is None and (request.keys or request.shapes):
        raise UsageError(
            "--key and --shape are of one kernel, and none is named",
            hint="./dev tune attn_fwd --key width=64",
        )
    if request.device and scheduler:
        raise UsageError("--device does not fit --scheduler", hint="GPUs of this machine are timed")


def _on_device(flags: TimedFlags) -> "OnDevice":
    from aotforge.devtools.tune.rounds import Timing
    from aotforge.devtools.tune.run_tune import OnDevice
    from aotforge.verify.device.watchdog import Limits

    if not flags.drift > 0 or not flags.seconds > 0:
        raise UsageError("--drift and --seconds are more than 0", hint="--drift 5 --seconds 60")
    return OnDevice(
        number=flags.gpu,
        driver=flags.hip,
        timing=Timing(drift=flags.drift / 100),
        limits=Limits(launch=flags.seconds),
    )


def _on_cluster(cluster: "Cluster") -> "Estimates":
    from aotforge.devtools.tune.cluster_estimates import ClusterEstimates

    return ClusterEstimates(cluster=cluster)


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in {"s", "m", "h"} or not number.isdecimal() or not int(number):
        raise UsageError(
            f"--budget {text} is not a valid time", hint="--budget 90s, --budget 20m, --budget 2h"
        )
    return int(number) * {"s": 1.0, "m": 60.0, "h": 3600.0}[unit]
