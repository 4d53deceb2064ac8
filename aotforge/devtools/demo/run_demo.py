"""From a request to a report: a release is built unless one is named, and calls are chosen that its profile serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aotforge.devtools.demo.client import run_demo
from aotforge.devtools.demo.model import DemoReport
from aotforge.errors import UnsupportedError
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import BuildRequest
from aotforge.plan.model import Plan
from aotforge.virtual_gpu.interpreter.number_formats import DType
from kernels.flash.call import DTYPE_KEY
from kernels.flash.call import Case as Problem

_LARGEST_HEAD_DIM = 64
_SHAPE = Problem(batch=2, heads_q=4, heads_k=2, seqlen_q=200, seqlen_k=200)


@dataclass(frozen=True, kw_only=True)
class DemoRequest:
    """`release`: a release folder to use as it is; None builds one as `build` says."""

    build: BuildRequest
    release: Path | None


def demo(
    request: DemoRequest,
    *,
    observer: BuildObserver,
) -> DemoReport:
    """Build, lay out, run, compare. Raises what `build` and `run_demo` raise; UnsupportedError when the profile has no attention."""
    plans = make_plans(request.build)
    folder = request.release
    if folder is None:
        folder = build(request.build, observer=observer).release.folder
    observer.stage("virtual GPU")
    return run_demo(
        request.build.root,
        folder,
        archs=[arch for plan in plans for arch in plan.archs],
        packs=[plan.pack for plan in plans],
        problems=problems_of(plans),
        cache=request.build.cache,
    )


def problems_of(plans: Sequence[Plan]) -> tuple[Problem, ...]:
    """Attention calls that every plan serves: each dtype, full and causal, with the largest head_dim up to 64. Raises UnsupportedError."""
    served = set.intersection(*(_served(plan) for plan in plans))
    found = []
    dtypes: dict[int, DType] = {number: dtype for dtype, number in DTYPE_KEY.items()}
    for dtype, causal in sorted({(dtype, causal) for dtype, _, causal in served}):
        dims = [dim for one, dim, mask in served if (one, mask) == (dtype, causal)]
        dim = max([d for d in dims if d <= _LARGEST_HEAD_DIM] or [min(dims)])
        found.append(
            replace(
                _SHAPE,
                dtype=dtypes[dtype],
                head_dim=dim,
                sm_scale=dim**-0.5,
                window_right=0 if causal else None,
            )
        )
    if not found:
        raise UnsupportedError(
            f"profile {plans[0].profile} has no attention that all of these chips serve",
            hint="another --profile",
        )
    return tuple(found)


def _served(plan: Plan) -> set[tuple[int, int, int]]:
    """(dtype, head_dim, causal) of the forward kernel."""
    return {
        (named["dtype"], named["head_dim"], named["causal"])
        for kernel in plan.kernels
        if kernel.operator == "attn_fwd"
        for functional in kernel.functionals
        for named in [dict(zip(kernel.keys, functional.key, strict=True))]
    }
