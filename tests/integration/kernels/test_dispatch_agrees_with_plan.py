"""The interpreter chooses configurations as the plan does: what is checked here is what is launched."""

from __future__ import annotations

import math
from functools import cache
from math import prod
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import UnsupportedError
from aotforge.plan.model import CompileJob, Plan, PlannedChoice, PlannedKernel
from aotforge.rules import Kernel
from kernels.add.rules import FAMILY as ADD
from kernels.flash.rules import FAMILY as FLASH
from tests.integration.kernels.attention_call import GFX908
from tests.support.families import plan_project
from tests.support.source_launches import select

KERNELS = [*FLASH.kernels, *ADD.kernels]


@cache
def plan() -> Plan:
    return plan_project(Path(__file__).parents[3], archs=["gfx908"], profile="full")


def planned(kernel: Kernel) -> PlannedKernel:
    return next(k for k in plan().kernels if k.name.split(".")[-1] == kernel.name)


def look_up(kernel: PlannedKernel, values: dict[str, int]) -> PlannedChoice | None:
    """The first choice of the functional whose predicates all hold (docs/image-pack-format.md)."""
    key = tuple(values[name] for name in kernel.keys)
    for functional in kernel.functionals:
        exact = functional.key == key
        if exact or (kernel.ladder and functional.key[:-1] == key[:-1] and functional.key[-1] >= key[-1]):
            for choice in functional.choices:
                if all(
                    prod(values[name] for name in p.values) % p.low == 0
                    if p.kind == "multiple"
                    else p.low <= prod(values[name] for name in p.values) <= p.high
                    for p in choice.predicates
                ):
                    return choice
    return None


def job_of(choice: PlannedChoice) -> CompileJob:
    return next(job for job in plan().jobs if job.key == choice.job)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Kernel, dict[str, int]]:
    kernel = draw(st.sampled_from(KERNELS))
    values: dict[str, int] = {}
    for argument in kernel.arguments:
        values[argument.value] = 64 * draw(st.integers(1, 50))
    values |= {term.value: draw(st.integers(0, 300)) for axis in kernel.grid for term in axis}
    if draw(st.booleans()):
        crooked = draw(st.sampled_from(sorted(values)))
        values[crooked] = values[crooked] // 16 * 16 + draw(st.integers(1, 15))
    for choice in kernel.choices:
        outside = draw(st.integers(0, 40)) == 0
        values[choice.key] = 77 if outside else draw(st.sampled_from(sorted(choice.options.values())))
    if "width" in values:
        values["width"] -= draw(st.sampled_from((0, 0, 0, 5)))
        values["head_dim"] = values["width"] - draw(st.integers(0, 9)) // 9
        values["head_dim_v"] = values["width"]
    return kernel, values


@settings(max_examples=300, deadline=None)
@given(call=calls())
def test_same_image_for_every_call(call: tuple[Kernel, dict[str, int]]) -> None:
    kernel, values = call
    choice = look_up(planned(kernel), values)
    try:
        launch = select(kernel, GFX908, values)
    except UnsupportedError:
        assert choice is None
        return
    assert choice is not None
    job = job_of(choice)
    assert dict(job.constants) == dict(launch.constants)
    assert dict(job.options)["num_warps"] == launch.setting.num_warps
    assert bool(job.hints) == launch.hinted
    grid = [math.prod(-(-values[t.value] // t.divisor) for t in axis) for axis in choice.grid]
    assert tuple((*grid, 1, 1)[:3]) == launch.grid
    assert [p.name for p in planned(kernel).parameters] == list(launch.arguments)
