"""Hazards of gfx11: an image compiled without its cure fails verification, the image of the plan passes and
computes the same."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.plan.model import PlannedKernel
from aotforge.verify.check_image import check_image
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images

pytestmark = pytest.mark.compiler

_END = """
    extra = left - tl.max(left, 0)
    total = tl.sum(tl.exp(extra), 0)
    zero = tl.where(total < 0, tl.exp(extra) / total * right + left, 0.0)
    tl.store(out + start + lane, (left + right + zero).to(out.dtype.element_ty), mask=mask)
"""


def _with_key(kernel: PlannedKernel, old: str, new: str) -> PlannedKernel:
    """The kernel with the one image under another key, and no other."""
    functionals = (
        replace(one, choices=tuple(replace(c, job=new) for c in one.choices if c.job == old))
        for one in kernel.functionals
    )
    return replace(kernel, functionals=tuple(one for one in functionals if one.choices))


def test_an_image_with_a_hazard_fails_and_its_cure_passes(tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    shutil.copytree(PROJECT / "kernels" / "add", root / "add", ignore=shutil.ignore_patterns("__pycache__"))
    source = root / "add" / "add.py"
    text = source.read_text()
    source.write_text(text[: text.index("    tl.store(")] + _END.lstrip("\n"))
    plan = plan_of(root, arch="gfx1100")
    job = next(job for job in plan.jobs if job.label.endswith("fp32:0"))
    assert job.cures == ("dual-issue-parity",)
    raw = replace(job, key="0" * 64, cures=())
    outcomes = {}
    for name, one in {"cured": job, "raw": raw}.items():
        alone = replace(
            plan, jobs=(one,), kernels=tuple(_with_key(kernel, job.key, one.key) for kernel in plan.kernels)
        )
        images = compiled_images(alone, root, tmp_path / name)
        (task,) = image_tasks(alone, images, root)
        outcomes[name] = check_image(task, kernels_root=root, cache=CACHE)
        assert ("::" in images[one.key].asm) or name == "cured"
    assert outcomes["cured"].outcome == "passed", outcomes["cured"].failure
    assert outcomes["raw"].outcome == "failed"
    failures = outcomes["raw"].failure.splitlines()
    assert len(failures) == 1 and failures[0].startswith("hazard dual-issue-parity: ")
    assert outcomes["raw"].outputs == outcomes["cured"].outputs
