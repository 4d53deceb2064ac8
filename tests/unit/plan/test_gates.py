"""The proof that a plan serves all calls of a gate, and each way in which it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.plan.gates import missing_calls, pytorch_use, served_gates
from aotforge.plan.model import (
    PlannedChoice,
    PlannedFunctional,
    PlannedKernel,
    PlannedParameter,
    Predicate,
    ServedGate,
)
from aotforge.rules import Gate, GateCalls
from tests.support.families import plan_project

ROOT = Path(__file__).parents[3]
ANY = PlannedChoice(job="a", predicates=(), grid=())
ALIGNED = PlannedChoice(job="b", predicates=(Predicate(values=("x",), kind="multiple", low=16),), grid=())
KERNEL = PlannedKernel(
    family="f",
    name="k",
    operator="op",
    step=0,
    keys=("mask", "width"),
    ladder=True,
    parameters=(PlannedParameter(name="x", type="ptr", value="x"),),
    functionals=tuple(
        PlannedFunctional(arch="gfx908", key=(mask, width), choices=(ALIGNED, ANY))
        for mask in (0, 1)
        for width in (16, 64)
    ),
)
CALLS = GateCalls(operator="op", values={"mask": (0, 1), "width": (64,)}, uses=("x", "mask"))
GATE = Gate(name="g", calls=(CALLS,))
SERVED = (ServedGate(gate="g", arch="gfx908"),)


def test_a_plan_with_every_image_serves_the_gate() -> None:
    assert served_gates([GATE], [KERNEL], ["gfx908", "gfx90a"]) == SERVED


def without(key: tuple[int, int]) -> PlannedKernel:
    return replace(KERNEL, functionals=tuple(f for f in KERNEL.functionals if f.key != key))


def conditional(*predicates: Predicate) -> PlannedKernel:
    choice = replace(ANY, predicates=predicates)
    first, *rest = KERNEL.functionals
    return replace(KERNEL, functionals=(replace(first, choices=(ALIGNED, choice)), *rest))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (without((1, 64)), "f.k has no image for mask 1, width 64"),
        (replace(KERNEL, ladder=False, functionals=without((1, 64)).functionals), "no image for mask 1"),
        (replace(KERNEL, operator="other"), "op is not in the plan"),
        (replace(KERNEL, keys=("mask", "other")), "f.k distinguishes other"),
        (replace(KERNEL, parameters=(), functionals=()), "no kernel of op uses x"),
        (
            conditional(Predicate(values=("x",), kind="multiple", low=2)),
            "f.k has conditions on mask 0, width 64",
        ),
        (conditional(Predicate(values=("x",), kind="range", low=1, high=2**31)), "has conditions"),
        (conditional(Predicate(values=("x", "y"), kind="range", low=0, high=2**62)), "has conditions"),
    ],
)
def test_what_is_missing_is_named(kernel: PlannedKernel, text: str) -> None:
    assert any(text in line for line in missing_calls(GATE, [kernel], "gfx908"))
    assert served_gates([GATE], [kernel], ["gfx908"]) == ()


def test_a_lower_rung_is_part_of_the_gate() -> None:
    """Widths from 1 to 16 are calls as well: their image must serve all of them."""
    (line,) = missing_calls(GATE, [conditional(Predicate(values=("x",), kind="multiple", low=8))], "gfx908")
    assert "conditions" in line
    assert served_gates([GATE], [without((0, 16))], ["gfx908"]) == SERVED


def test_conditions_that_always_hold_do_not_matter() -> None:
    always = conditional(
        Predicate(values=("x",), kind="multiple", low=1),
        Predicate(values=("y",), kind="range", low=0, high=2**31 - 1),
    )
    assert served_gates([GATE], [always], ["gfx908"]) == SERVED


def test_every_step_must_serve() -> None:
    second = replace(without((1, 64)), name="second", step=1)
    assert served_gates([GATE], [KERNEL, second], ["gfx908"]) == ()


def test_excepted_archs() -> None:
    gate = Gate(name="g", calls=(replace(CALLS, except_archs=("gfx11",)),))
    assert served_gates([gate], [], ["gfx1100", "gfx908"]) == (ServedGate(gate="g", arch="gfx1100"),)


def test_a_small_profile_serves_no_gate_of_pytorch() -> None:
    assert plan_project(ROOT, archs=["gfx908"], profile="smoke").gates == ()


def test_pytorch_uses_images_that_serve_its_gate_on_every_arch() -> None:
    gates = [ServedGate(gate=gate, arch="gfx908") for gate in ("0.11", "0.13")]
    assert pytorch_use(gates, ["gfx908"], "0.13") == "yes"
    why = "no, because the images for {} do not serve all attention that PyTorch may request at API level {}"
    assert pytorch_use(gates, ["gfx906", "gfx908"], "0.13").startswith(why.format("gfx906", "0.13"))
    assert pytorch_use(gates, ["gfx908"], "0.12").startswith(why.format("gfx908", "0.12"))
