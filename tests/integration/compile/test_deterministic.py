"""An image's bytes depend on its job alone, not on what its worker did before.

LLVM's optimiser orders some operands by address. In a process that had compiled other jobs, the backward
kernel below came out in three versions; the worker's forks and fresh heaps are what keeps this test green.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.compile_plan import compile_one
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from tests.integration.compile.builds import compiled
from tests.support.families import plan_project

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "kernels"
ARCHITECTURES = load_architectures(ROOT / "manifests")

pytestmark = pytest.mark.compiler


def digests(plan: Plan, folder: Path, jobs: int) -> dict[str, str]:
    images = compiled(plan, folder, jobs=jobs)
    return {job.label: images.digest(job.key) for job in plan.jobs}


def test_alone_or_after_others_the_bytes_are_the_same(tmp_path: Path) -> None:
    """Together in one worker: four images of that kernel, one after another, then two of a small one."""
    plan = plan_project(ROOT, archs=["gfx908"], profile="smoke", only=Only(("bwd_dk_dv", "bwd_preprocess")))
    together = digests(plan, tmp_path / "together", 1)
    jobs = [job for job in plan.jobs if job.kernel == "bwd_dk_dv"]
    assert (len(jobs), len(together)) == (4, 6)
    for job in jobs:
        (tmp_path / job.key).mkdir()
        alone = compile_one(
            job, kernels_root=KERNELS, architectures=ARCHITECTURES, scratch=tmp_path / job.key
        )
        assert alone.digest == together[job.label]


@pytest.mark.slow
def test_every_core_image_in_three_orders(tmp_path: Path) -> None:
    """Minutes; the scheduler hands out long jobs first, and more workers make other sequences in each of
    them."""
    plan = plan_project(ROOT, archs=["gfx908"], profile="core")
    found = [digests(plan, tmp_path / str(jobs), jobs) for jobs in (1, 2, random.randint(3, 5))]
    assert found[0] == found[1] == found[2]
