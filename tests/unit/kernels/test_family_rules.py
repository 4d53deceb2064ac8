"""What must hold for every kernel family: rules, sources and operators agree."""

from __future__ import annotations

import ast
import itertools
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.plan.conditions import predicate
from aotforge.rules import (
    GENERAL_SUFFIX,
    Family,
    Functional,
    GeneralSetting,
    Kernel,
    MultipleOf,
    Setting,
    Target,
)
from aotforge.timed_rules import TimedSetting
from kernels.add.rules import FAMILY as ADD
from kernels.elementwise.rules import FAMILY as ELEMENTWISE
from kernels.flash.backward_settings import WIDTHS
from kernels.flash.rules import FAMILY as FLASH
from kernels.flash_atomic.rules import FAMILY as FLASH_ATOMIC
from kernels.flash_paged.rules import FAMILY as FLASH_PAGED
from kernels.gemm.rules import FAMILY as GEMM
from kernels.rms_norm.rules import FAMILY as RMS_NORM
from kernels.softmax.rules import FAMILY as SOFTMAX
from tests.support.families import plan_project

KERNELS = Path(__file__).parents[3] / "kernels"
TARGETS = (
    Target(arch="gfx908", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536),
    Target(arch="gfx942", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536),
    Target(arch="gfx1100", vendor="amd", warp_size=32, matrix="WMMA", shared_bytes=65536),
    Target(arch="gfx1030", vendor="amd", warp_size=32, matrix="none", shared_bytes=65536),
)
FAMILIES = (FLASH, FLASH_PAGED, ADD, ELEMENTWISE, RMS_NORM, SOFTMAX, GEMM)
ALL = [pytest.param(f, k, id=f"{f.name}.{k.name}") for f in FAMILIES for k in f.kernels]


def functionals(kernel: Kernel) -> Iterator[Functional]:
    names = [choice.name for choice in kernel.choices]
    for values in itertools.product(*(choice.options for choice in kernel.choices)):
        functional = dict(zip(names, values, strict=True))
        if kernel.allowed(functional):
            yield functional


def offers(kernel: Kernel) -> Iterator[tuple[Functional, tuple[Setting, ...]]]:
    for target in TARGETS:
        for functional in functionals(kernel):
            yield functional, kernel.settings(target, functional)


def is_general(setting: Setting) -> bool:
    """Whether it has a function of its own."""
    return isinstance(setting, GeneralSetting) and bool(setting.source)


def general_sources(kernel: Kernel) -> set[str]:
    """Sources of the kernel's general functions."""
    settings = (setting for _, every in offers(kernel) for setting in every)
    return {one.source for one in settings if isinstance(one, GeneralSetting)} - {""}


def general(kernel: Kernel) -> Kernel:
    """The kernel with its general function instead."""
    (source,) = general_sources(kernel)
    return replace(kernel, source=source, function=f"{kernel.function}{GENERAL_SUFFIX}")


def parameters(family: Family, kernel: Kernel) -> tuple[list[str], set[str]]:
    """Names of all parameters in order, and of those that are constexpr, read without importing Triton."""
    tree = ast.parse((KERNELS / family.name / kernel.source).read_text())
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == kernel.function)
    assert [ast.unparse(d) for d in function.decorator_list] in (["triton.jit"], ["gluon.jit"])
    names = [a.arg for a in function.args.args]
    annotated = {
        a.arg
        for a in function.args.args
        if a.annotation and ast.unparse(a.annotation).rpartition(".")[2] == "constexpr"
    }
    return names, annotated


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_arguments_are_the_functions_run_time_parameters_in_order(family: Family, kernel: Kernel) -> None:
    for one in (kernel, *([general(kernel)] if general_sources(kernel) else [])):
        names, constexpr = parameters(family, one)
        assert [a.name for a in kernel.arguments] == [name for name in names if name not in constexpr]


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_constants_fill_every_constexpr_and_nothing_else(family: Family, kernel: Kernel) -> None:
    _, constexpr = parameters(family, kernel)
    for functional, settings in offers(kernel):
        constants = kernel.constants(functional)
        for setting in settings:
            if is_general(setting):
                assert setting.constants.keys() == parameters(family, general(kernel))[1]
                continue
            own = isinstance(setting, TimedSetting) and setting.source
            wanted = parameters(family, replace(kernel, source=own))[1] if own else constexpr
            assert constants.keys() | setting.constants.keys() == wanted
            assert not constants.keys() & setting.constants.keys()


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_every_functional_has_settings_and_only_the_last_serves_all(family: Family, kernel: Kernel) -> None:
    seen = 0
    for functional, settings in offers(kernel):
        assert settings, functional
        seen += 1
        # one that serves all before the last would make the rest unreachable, but for a general one, which
        # other profiles lack that one for
        special = [setting for setting in settings if not is_general(setting)]
        assert all(set(setting.when) > set(special[-1].when) for setting in special[:-1])
        assert settings[: len(special)] == tuple(special)
        assert all(setting.when == () and not setting.hinted for setting in settings[len(special) :])
    assert seen


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_every_name_is_a_value_of_the_operator(family: Family, kernel: Kernel) -> None:
    types = {v.name: v.type for o in family.operators if o.name == kernel.operator for v in o.values}
    for choice in kernel.choices:
        assert types[choice.key] in {"i32", "i64", "u64"}
        assert len(set(choice.options.values())) == len(choice.options)
    assert len({choice.key for choice in kernel.choices}) == len(kernel.choices)
    for argument in kernel.arguments:
        pointer = argument.type.startswith("*")
        assert (types[argument.value] == "ptr") == pointer
        if not pointer:
            assert {"fp32": "f32"}.get(argument.type, argument.type) == types[argument.value]
    for term in itertools.chain.from_iterable(kernel.grid):
        assert types[term.value] in {"i32", "i64"}
    for _, settings in offers(kernel):
        for condition in itertools.chain.from_iterable(s.when for s in settings):
            assert {types[value] for value in predicate(condition).values} <= {"i32", "i64"}


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_kernels_need_nothing_beyond_their_parameters(family: Family, kernel: Kernel) -> None:
    # tl.num_programs is a hidden kernel argument on AMD: the launch that the pack describes would not pass it
    for source in {kernel.source} | general_sources(kernel):
        tree = ast.parse((KERNELS / family.name / source).read_text())
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not used & {"num_programs", "device_print", "device_assert", "inline_asm_elementwise"}
        assert not {name for name in used if name.startswith("atomic_")}  # deterministic


@pytest.mark.parametrize(("family", "kernel"), ALL)
def test_grid_divisors_are_known(family: Family, kernel: Kernel) -> None:
    for functional, settings in offers(kernel):
        for setting in settings:
            known = {**kernel.constants(functional), **setting.constants}
            for term in itertools.chain.from_iterable(kernel.grid):
                divisor = known[term.divisor] if isinstance(term.divisor, str) else term.divisor
                assert isinstance(divisor, int)
                assert divisor >= 1


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: str(f.name))
def test_steps_of_an_operator_are_numbered_without_a_gap(family: Family) -> None:
    assert family.operators
    for operator in family.operators:
        steps = sorted(k.step for k in family.kernels if k.operator == operator.name)
        assert steps == list(range(len(steps)))
        assert steps
        assert len({v.name for v in operator.values}) == len(operator.values)


def test_core_stays_small_enough_to_build_in_minutes() -> None:
    plan = plan_project(KERNELS.parent, archs=["gfx908"], profile="core")
    general = [job for job in plan.jobs if job.function.endswith(GENERAL_SUFFIX)]
    assert 90 <= len(plan.jobs) - len(general) <= 160
    # for each dtype: forward, dK and dV, dQ, each with and without a window, and the preprocessing
    assert len(general) == 3 * 7


def test_attention_covers_what_it_declares() -> None:
    forward = next(k for k in FLASH.kernels if k.name == "attn_fwd")
    assert {(f["dtype"], f["dropout"], f["mask"], f["width"]) for f in functionals(forward)} == set(
        itertools.product(("fp16", "bf16", "fp32"), (False, True), ("full", "window", "bias"), WIDTHS)
    )


SM_90 = Target(arch="sm_90", vendor="nvidia", warp_size=32, matrix="MMA", shared_bytes=232448)


@pytest.mark.parametrize("kernel", FLASH_ATOMIC.kernels, ids=lambda kernel: str(kernel.name))
def test_the_fused_backward_pass_is_for_sm_90_alone_and_every_step_has_the_same_conditions(
    kernel: Kernel,
) -> None:
    others = (*TARGETS, *(replace(SM_90, arch=arch) for arch in ("sm_80", "sm_89", "sm_100")))
    for functional in functionals(kernel):
        assert not any(kernel.settings(target, functional) for target in others)
        (setting,) = kernel.settings(SM_90, functional)
        assert (setting.hinted, setting.unaligned) == (True, False)
        first = FLASH_ATOMIC.kernels[0].settings(SM_90, functional)
        assert setting.when == first[0].when
        assert {MultipleOf(value="seqlen_q", of=64), MultipleOf(value="seqlen_k", of=128)} <= {*setting.when}


def test_registers_that_a_row_names_fit_a_multiprocessor() -> None:
    """A launch that needs more than the 65536 of sm_90 fails."""
    kernels = [kernel for kernel in FLASH.kernels if kernel.name in ("bwd_dk_dv", "bwd_dq")]
    named = set()
    for kernel in kernels:
        for setting in (
            one for functional in functionals(kernel) for one in kernel.settings(SM_90, functional)
        ):
            registers = int(setting.options.get("maxnreg", 0))
            named.add(registers)
            assert registers <= 255 and setting.num_warps * SM_90.warp_size * registers <= 65536
    assert named == {0, 255}


def test_row_hints_are_sixteen_bytes_for_every_dtype() -> None:
    for kernel in (kernel for kernel in FLASH.kernels if kernel.name != "attn_dropout_mask"):
        hints = {a.name: a.divisible_by for a in kernel.arguments}
        tensors = [a.name for a in kernel.arguments if a.type == "*{dtype}"]
        assert {hints[name] for name in tensors} == {16}
        # rows of L and D are float32, and a bias need not be dense
        others = re.compile(r"stride_(l|d|b|db)[zhmn]")
        rows = [a.name for a in kernel.arguments if a.type == "i64" and not others.fullmatch(a.name)]
        assert {math.prod((hints[name] or 0, 2)) for name in rows} == {16}


@pytest.mark.parametrize(
    "family", ["flash", "flash_atomic", "flash_paged", "add", "elementwise", "rms_norm", "softmax"]
)
def test_rules_load_without_triton_or_numpy(family: str) -> None:
    loaded = "sorted({'triton', 'numpy', 'torch'} & set(sys.modules))"
    code = f"import sys, kernels.{family}.rules; print({loaded})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=KERNELS.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.arch))
def test_an_operator_is_served_by_all_of_its_kernels_or_none(target: Target) -> None:
    """And all archs serve everything."""
    for kernel in FLASH.kernels:
        for functional in functionals(kernel):
            assert kernel.settings(target, functional)
