"""What `build` prints of the images that it made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from aotforge.compile.image_set import resources, spills
from aotforge.pipeline.build_release import BuildReport, _next_steps
from aotforge.plan.model import LeftOut, ServedGate
from aotforge.plan.selection import Only
from tests.support.families import PROJECT, plan_project
from tests.unit.compile.test_resources import GFX908, stats


def test_spills_to_memory_are_listed_and_the_harmless_ones_counted() -> None:
    memory = spills(resources(stats(spilled_registers=2, scratch_bytes=12), GFX908))
    lanes = spills(resources(stats(spilled_scalar_registers=3), GFX908))
    report = SimpleNamespace(
        shared=0, images=4, packs=("amd-gfx908",), compiled=4, cached=0, executed=0, known=0, damaged=(),
        release=SimpleNamespace(contents=SimpleNamespace(verified=False)),
        spills=(f"a: {lanes}", f"b: {memory}", f"c: {lanes}"),
    )  # fmt: skip
    assert BuildReport._made(cast("BuildReport", report))[1:] == [
        f"spills: b: {memory}",
        "2 images spill scalar registers to lanes of other registers, not to memory; --json lists them",
    ]


def plan(profile: str, *archs: str, gates: tuple[str, ...] = ()) -> Any:
    """The part of a plan that the lines are about; `gates` are served on its first arch."""
    served = tuple(ServedGate(gate=gate, arch=archs[0]) for gate in gates)
    less = tuple(LeftOut(kernel=f"flash.{name}", functionals=3, values=("width=16",)) for name in "abc")
    kernels = (SimpleNamespace(operator="attn_fwd"),)
    return SimpleNamespace(
        profile=profile, archs=archs, gates=served, left_out=less, jobs=(), pack="pack", kernels=kernels
    )


def test_what_a_profile_leaves_out_is_one_line_and_pytorchs_use_the_last() -> None:
    release: Any = SimpleNamespace(
        name="0.13b-r1", folder=Path("out"), fresh=False, files=(),
        contents=SimpleNamespace(development=(), platform="linux_x86_64"),
    )  # fmt: skip
    plans = (plan("core", "gfx908", gates=("0.13",)),)
    lines = BuildReport(plans=plans, release=release, executor="local", roots=(), compiler="g++").lines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert notes == [
        "note: profile core has no images of their own for some calls of 3 kernels; ./dev plan lists them"
    ]
    assert lines[-1] == "PyTorch will use these images: yes"


def test_the_demo_is_of_an_arch_of_the_release() -> None:
    plan = plan_project(PROJECT, archs=["gfx1030"], profile="smoke")
    demo, dropin = _next_steps(Path("a release"), (plan,))
    assert demo == "next: ./dev demo --arch gfx1030 --release 'a release'"
    assert dropin.split() == [
        "./dev", "dropin", "--release", "'a", "release'", "--pytorch-lib", "TORCH/LIB"
    ]  # fmt: skip


def test_a_release_without_attention_has_no_demo() -> None:
    plan = plan_project(PROJECT, archs=["gfx908"], profile="smoke", only=Only(("rms_norm",)))
    assert _next_steps(Path("r"), (plan,)) == ["next: ./dev coverage r"]
