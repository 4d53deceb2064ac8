"""The next steps after a build are commands that its images serve."""

from __future__ import annotations

from pathlib import Path

from aotforge.pipeline.build_release import _next_steps
from aotforge.plan.planner import plan_project
from aotforge.plan.selection import Only
from tests.support.families import PROJECT


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
