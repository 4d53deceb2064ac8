"""Where parts are made, and the plans of what compiles there: the same choice as an undivided build's."""

from __future__ import annotations

from aotforge.base.progress import Observer
from aotforge.compile.compile_plan import toolchain_of
from aotforge.pipeline.build_release import BuildRequest, execution_targets, make_plans
from aotforge.plan.model import Plan
from aotforge.sandbox.executors.step import KERNELS, ExecutionTargets


def placed(
    request: BuildRequest, *more: str, observer: Observer
) -> tuple[ExecutionTargets, tuple[Plan, ...]]:
    """The executor with the kernels' root and `more` roots, and one plan per pack for the compiler there. Raises what `execution_targets` and
    `make_plans` raise."""
    executions = execution_targets(request, (KERNELS, *more), observer=observer)
    return executions, make_plans(request, toolchain=toolchain_of(executions.kernels, cache=request.cache))
