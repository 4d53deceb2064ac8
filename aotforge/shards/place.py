"""Where parts are made, and the plans of what compiles there: the same choice as an undivided build's."""

from __future__ import annotations

from collections.abc import Callable

from aotforge.build import BuildRequest, make_plans
from aotforge.compile import toolchain_of
from aotforge.executors import Sites, choose_sites
from aotforge.plan import Plan


def placed(
    request: BuildRequest, *, on_stage: Callable[[str], None], on_note: Callable[[str], None]
) -> tuple[Sites, tuple[Plan, ...]]:
    """The executor's sites and one plan per pack for the compiler there. Raises what `choose_sites` and `make_plans` raise."""
    sites = choose_sites(
        request.executor,
        request.root,
        cache=request.cache,
        keep=request.keep,
        environment=request.environment,
        on_stage=on_stage,
        on_note=on_note,
    )
    return sites, make_plans(request, toolchain=toolchain_of(sites.kernels, cache=request.cache))
