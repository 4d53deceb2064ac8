"""Faults planted in the general attention images and in their rules: the verifier's few cases show each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from aotforge.verify.check_image import check_image
from aotforge.verify.verdict import Verdict
from aotforge.verify.verify_plan import image_tasks, load_interpreters
from tests.support.families import plan_project
from tests.support.runtime import CACHE, ROOT
from vgpu.emulator.interpreter_library import use_library

pytestmark = pytest.mark.compiler
WINDOW = "flash.attn_fwd:gfx908:dtype=fp16,mask=window:general"
OTHERS = "flash.attn_fwd:gfx908:dtype=fp16,mask=full or bias:general"
FAULTS = {
    "a window's image for all calls": (
        "general_settings.py", 'window = functional.get("mask") == "window"', "window = True", WINDOW,
    ),
    "no alignment of rows is needed": ("general_tiles.py", "& 15) == 0", "& 1) == 0", OTHERS),
    "columns of the last piece": (
        "general_forward.py", "head_dim_v - part * PART, wide", "head_dim_v, wide", OTHERS,
    ),
    "one column of a bias": ("general_tiles.py", "columns * stride_n)", "columns * stride_n * 0)", OTHERS),
    "no dropout": ("general_forward.py", "p = only(kept(", "p = only(-1 | kept(", OTHERS),
}  # fmt: skip
"""File, sound text, faulty text, and the label of an image that it is in."""


def root_with(folder: Path, file: str = "", sound: str = "", faulty: str = "") -> Path:
    """A checkout's kernels, with a fault."""
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    for name in ("manifests", "requirements"):
        (folder / name).symlink_to(ROOT / name)
    if file:
        path = folder / "kernels" / "flash" / file
        assert sound in path.read_text()
        path.write_text(path.read_text().replace(sound, faulty))
    return folder


def verdict(root: Path, label: str) -> Verdict:
    """Of one image of the default profile."""
    complete = plan_project(root, archs=["gfx908"], only=Only(("flash.attn_fwd",)))
    jobs = tuple(job for job in complete.jobs if job.label == label)
    plan: Plan = Plan(**{**vars(complete), "jobs": jobs})
    with Cache(CACHE) as cache:
        images = compile_plan(
            plan, kernels_root=root / "kernels", architectures=load_architectures(), cache=cache
        )
    (task,) = image_tasks(plan, images, root / "kernels")
    for lanes, path in load_interpreters([task], CACHE).items():
        use_library(path, lanes, CACHE, "checks")
    return check_image(task, kernels_root=root / "kernels", cache=CACHE)


def test_the_images_as_they_are_pass(tmp_path: Path) -> None:
    found = verdict(root_with(tmp_path), OTHERS)
    assert found.outcome == "passed", found.failure
    # calls of every functional that the image serves
    for part in ("widest", "compact", "low scores", "grouped", "few columns", "ragged, masked", "one row"):
        assert any(case.startswith(part) for case in found.cases), part


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if number > 1 else [])
        for number, name in enumerate(FAULTS)
    ],
)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    file, sound, faulty, label = FAULTS[name]
    assert verdict(root_with(tmp_path, file, sound, faulty), label).outcome == "failed"
