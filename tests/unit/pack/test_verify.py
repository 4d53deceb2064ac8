"""Comparison of a pack with its plan, in both directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aotforge.errors import PackError
from aotforge.pack.binary import Source
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.plan.model import Plan
from tests.unit.pack.samples import image, sample

PLAN, IMAGES = sample()
OPENED = open_files(write_pack(PLAN, IMAGES, release="0.0-r1"))


def without_a_call(plan: Plan) -> Plan:
    kernels = tuple(
        replace(kernel, functionals=tuple(f for f in kernel.functionals if f.key != (3, 0)))
        for kernel in plan.kernels
    )
    kept = {choice.job for kernel in kernels for f in kernel.functionals for choice in f.choices}
    return replace(plan, kernels=kernels, jobs=tuple(job for job in plan.jobs if job.key in kept))


def test_pack_of_this_plan_passes() -> None:
    verify_pack(OPENED, PLAN, IMAGES)


def test_pack_that_lacks_a_planned_call_is_refused() -> None:
    smaller = without_a_call(PLAN)
    keys = {job.key for job in smaller.jobs}
    opened = open_files(write_pack(smaller, [one for one in IMAGES if one.key in keys], release="0.0-r1"))
    verify_pack(opened, smaller)
    with pytest.raises(PackError, match=r"demo.first for gfx906, dtype = 3, mode = 0 is missing"):
        verify_pack(opened, PLAN)


def test_pack_with_a_call_that_is_not_planned_is_refused() -> None:
    with pytest.raises(
        PackError, match=r"demo.first for gfx906, dtype = 3, mode = 0 is in the pack and not planned"
    ):
        verify_pack(OPENED, without_a_call(PLAN))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pack": "amd-other"}, "pack: the pack has 'amd-test'"),
        ({"archs": ("gfx908",)}, "archs"),
        ({"profile": "quick"}, "profile"),
        ({"complete": False}, "complete"),
        ({"source_digest": "0" * 64}, "source"),
        ({"settings_digest": "0" * 64}, "settings"),
        ({"toolchain": replace(PLAN.toolchain, triton_digest="0" * 64)}, "triton"),
        ({"operators": PLAN.operators[:1]}, "operator "),
        (
            {
                "operators": (
                    replace(PLAN.operators[0], values=PLAN.operators[0].values[:-1]),
                    PLAN.operators[1],
                )
            },
            "operator ",
        ),
        ({"gates": (("flash", 1),)}, "gates"),
    ],
)
def test_pack_of_another_origin_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(PackError, match=reason):
        verify_pack(OPENED, replace(PLAN, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "third"}, r"step 0 of blend: the pack has 'demo\.first', the plan 'demo\.third'"),
        (
            {"family": "other"},
            r"step 0 of blend: the pack has 'demo\.first', the plan 'other\.first'",
        ),
        ({"keys": ("mode", "dtype")}, r"keys of demo\.first"),
        ({"ladder": True}, r"ladder of demo\.first"),
        ({"parameters": PLAN.kernels[0].parameters[::-1]}, r"parameters of demo\.first"),
        ({"parameters": PLAN.kernels[0].parameters[:-1]}, r"parameters of demo\.first"),
    ],
)
def test_kernel_that_differs_in_one_field_is_refused(change: dict[str, object], reason: str) -> None:
    kernel = replace(PLAN.kernels[0], **change)  # type: ignore[arg-type]
    with pytest.raises(PackError, match=reason):
        verify_pack(OPENED, replace(PLAN, kernels=(kernel, *PLAN.kernels[1:])))


@pytest.mark.parametrize("field", ["predicates", "grid"])
def test_choice_that_differs_in_its_conditions_or_grid_is_refused(field: str) -> None:
    kernel = PLAN.kernels[0]
    first, *others = kernel.functionals
    none: Any = {field: ()}
    choices = (replace(first.choices[0], **none), *first.choices[1:])
    changed = replace(kernel, functionals=(replace(first, choices=choices), *others))
    with pytest.raises(PackError, match=r"demo\.first for gfx906, dtype = -1, mode = 0"):
        verify_pack(OPENED, replace(PLAN, kernels=(changed, *PLAN.kernels[1:])))


def test_step_that_is_missing_from_the_pack_is_refused() -> None:
    smaller = replace(PLAN, kernels=(PLAN.kernels[0], PLAN.kernels[2]))
    kept = {choice.job for kernel in smaller.kernels for f in kernel.functionals for choice in f.choices}
    smaller = replace(smaller, jobs=tuple(job for job in PLAN.jobs if job.key in kept))
    opened = open_files(write_pack(smaller, [one for one in IMAGES if one.key in kept], release="0.0-r1"))
    with pytest.raises(PackError, match="step 1 of blend is missing from the pack"):
        verify_pack(opened, PLAN)
    with pytest.raises(PackError, match="step 1 of blend is in the pack and not planned"):
        verify_pack(OPENED, smaller)


def test_damaged_image_is_refused_also_without_images_to_compare() -> None:
    name = "demo.first.aoti"
    data = bytearray(OPENED.sources[name].data)
    data[-1] ^= 1
    damaged = replace(OPENED, sources={**OPENED.sources, name: Source(name, bytes(data))})
    with pytest.raises(PackError, match=name):
        verify_pack(damaged, PLAN)


def test_choice_with_the_image_of_another_job_is_refused() -> None:
    other = image(PLAN.jobs[0], PLAN.kernels[0].parameters, binary=b"\x7fELF of another compiler")
    with pytest.raises(PackError, match=r"images of demo\.first for gfx906, .* the plan"):
        verify_pack(OPENED, PLAN, [other, *IMAGES[1:]])
