"""Where parts are made, and the plans of what compiles there: the same choice as an undivided build's."""

from __future__ import annotations

from aotforge.base.progress import Observer
from aotforge.compile.compile_plan import toolchain_of
from aotforge.pipeline.build_release import BuildRequest, make_plans, sites_of
from aotforge.plan.model import Plan
from aotforge.sandbox.executors.step import KERNELS, Sites


def placed(request: BuildRequest, *more: str, observer: Observer) -> tuple[Sites, tuple[Plan, ...]]:
    """The executor with the kernels' root and `more` roots, and one plan per pack for the compiler there. Raises what `sites_of` and
    `make_plans` raise."""
    sites = sites_of(request, (KERNELS, *more), observer=observer)
    return sites, make_plans(request, toolchain=toolchain_of(sites.kernels, cache=request.cache))
