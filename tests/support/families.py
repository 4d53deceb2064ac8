"""Kernel families written to temporary kernels roots, and plans of them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from aotforge.base.architectures import Architectures, Profile, Profiles, load_architectures, load_profiles
from aotforge.base.hazards import Hazards, load_hazards
from aotforge.plan import planner
from aotforge.plan.checkout import Checkout
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan
from aotforge.plan.planner import make_plan
from aotforge.toolchain.triton import Toolchain, read_toolchain

PROJECT = Path(__file__).parents[2]
TINY = PROJECT / "tests" / "fixtures" / "kernels"

_RULES = """
from aotforge.rules import Argument, Family, Kernel, Limits, Operator, Setting, Term, Value

OPERATOR = Operator(name="{name}", values=(Value(name="X", type="ptr"), Value(name="n", type="i32")))
FAMILY = Family(
    name="{name}",
    operators=(OPERATOR,),
    kernels=(
        Kernel(
            name="{name}",
            source="{name}.py",
            function="kernel",
            operator="{name}",
            choices=(),
            arguments=(
                Argument(name="x", type="*fp32", value="X", divisible_by={align}),
                Argument(name="n", type="i32", value="n"),
            ),
            settings=lambda target, functional: tuple(
                Setting(constants={{"BLOCK": block}}, num_warps={warps}, waves_per_eu={waves})
                for block in {blocks}
            ),
            grid=((Term(value="n", divisor="BLOCK"),),),
            limits=Limits(spills="{spills}"),
        ),
    ),
)
"""

HEADER = "import triton\nimport triton.language as tl\n\n"
KERNEL = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


def plan_project(root: Path, **selection: Any) -> Plan:
    """The plan of a checkout folder."""
    return planner.plan_project(Checkout(root), **selection)


def write_family(
    root: Path,
    name: str = "fam",
    text: str = KERNEL,
    *,
    blocks: tuple[int, ...] = (64,),
    align: int | None = None,
    warps: int = 1,
    waves: int = 0,
    spills: str = "reject",
) -> Path:
    """A family of one kernel `kernel(x, n, BLOCK)`. Settings with equal predicates make one image only."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    rules = _RULES.format(name=name, blocks=blocks, align=align, warps=warps, waves=waves, spills=spills)
    (folder / "rules.py").write_text(rules)
    (folder / f"{name}.py").write_text(HEADER + text)
    return root


def write_many(root: Path, count: int) -> Path:
    """`count` families, one image each, all cheap and all different."""
    for number in range(count):
        write_family(root, f"f{number:02}", KERNEL.replace("+ 1", f"+ {number + 1}"))
    return root


def copy_tiny(root: Path) -> Path:
    """The tiny fixture family in a root of its own."""
    shutil.copytree(TINY, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@cache
def toolchain() -> Toolchain:
    """The installed one."""
    return read_toolchain("3.9.0")


def architectures() -> Architectures:
    """The project's."""
    return load_architectures(PROJECT / "manifests")


def profiles() -> Profiles:
    """The project's."""
    return load_profiles(PROJECT / "manifests")


def hazards() -> Hazards:
    """The project's."""
    return load_hazards(PROJECT / "manifests")


def plan_of(
    root: Path,
    *,
    profile: str = "full",
    arch: str = "gfx908",
    compiler: Toolchain | None = None,
    own: Profile | None = None,
) -> Plan:
    """The plan of a kernels root, with `own` instead of a profile of the project."""
    return make_plan(
        load_families(root),
        SourceTree(root=root),
        archs=[arch],
        architectures=architectures(),
        profiles=Profiles(schema=1, default="own", profiles={"own": own}) if own else profiles(),
        profile="own" if own else profile,
        toolchain=compiler or toolchain(),
        hazards=hazards(),
    )


FAKE_TOOLCHAIN = Toolchain(
    triton_version="0", triton_digest="0" * 64, llvm_revision="0", environment=(("A", "1"),)
)
"""For tests of plans that never compile."""


SPILLING = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(x + i + n)
    c = tl.load(x + i + 2 * n)
    d = tl.load(x + i + 3 * n)
    tl.debug_barrier()
    tl.store(x + i, a * b + c * d)
    tl.store(x + i + n, a + b * c - d)
"""
"""A kernel that needs more registers than `waves` of 10 leave."""
