"""NVIDIA images by the pinned Triton and its ptxas: compiled by workers, checked, the same bytes again, one
release with AMD's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.compile.image_set import violations
from aotforge.pack.reader import open_files
from aotforge.pack.writer import write_pack
from aotforge.plan.model import Plan
from aotforge.plan.selection import Only
from aotforge.targets.nvidia.backend import read_cubin
from tests.integration.compile.builds import compiled
from tests.support.families import PROJECT, copy_tiny, plan_of, plan_project

pytestmark = pytest.mark.compiler

ARCHS = (
    "sm_80",
    "sm_90",
    pytest.param("sm_89", marks=pytest.mark.slow),
    pytest.param("sm_100", marks=pytest.mark.slow),
)


def planned(arch: str) -> Plan:
    return plan_project(PROJECT, archs=[arch], profile="smoke", only=Only(["add"]))


@pytest.mark.parametrize("arch", ARCHS)
def test_images_of_each_capability(arch: str, tmp_path: Path) -> None:
    plan = planned(arch)
    made = list(compiled(plan, tmp_path).values())
    assert len(made) == 2
    for image in made:
        found = read_cubin(image.binary)
        assert (f"sm_{found.capability}", found.symbol, found.threads) == (arch, image.symbol, 128)
        assert f".target {arch}" in image.asm and image.resources.registers == found.registers > 0
        assert image.resources.occupancy > 0 and image.resources.warp_size == 32
        for path in (str(PROJECT), str(tmp_path), "/tmp"):
            assert path.encode() not in image.binary
    pack = open_files(write_pack(plan, made, release="0.0-r1"))
    assert pack.signature.archs == (arch,) and pack.name == f"nvidia-{arch}"
    assert {one.digest.hex() for index in pack.indexes.values() for one in index.images} == {
        one.digest for one in made
    }


def test_the_same_job_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = planned("sm_90")
    first, second = (
        [image.binary for image in compiled(plan, tmp_path / name).values()] for name in ("one", "other")
    )
    assert first == second and len(first) == 2


def test_targets_enter_job_keys_under_the_names_of_the_first_recipe() -> None:
    """Other names give other keys, and every image of every cache is compiled again."""
    (target,) = {job.target for job in planned("gfx908").jobs}
    assert target.identity() == {"arch": "gfx908", "wavefront": 64, "matrix": "MFMA", "lds_bytes": 65536}


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _scale(x, y, n, a, BLOCK: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(y + i, (gl.load(x + i, mask=i < n) * a).to(y.dtype.element_ty), mask=i < n)


@gluon.jit
def _idle(x):
    pass


@gluon.jit
def axpy(x, y, n, a, BLOCK: gl.constexpr):
    gl.warp_specialize([(_scale, (x, y, n, a, BLOCK)), (_idle, (x,))], [4])
"""


@pytest.mark.slow
def test_a_settings_source_in_gluon_and_its_further_warps(tmp_path: Path) -> None:
    root = copy_tiny(tmp_path / "kernels")
    rules = root / "tiny" / "rules.py"
    rules.with_name("large.py").write_text(GLUON)
    timed = "from aotforge.timed_rules import TimedSetting\nfrom aotforge.rules import ("
    text = rules.read_text().replace("from aotforge.rules import (", timed)
    text = text.replace("large = Setting(", 'large = TimedSetting(source="large.py", ')
    rules.write_text(text)
    plan = plan_of(root, arch="sm_90")
    images = compiled(plan, tmp_path / "cache", kernels=root)
    for job in plan.jobs:
        gluon = job.source == "tiny/large.py"
        assert read_cubin(images[job.key].binary).threads == (256 if gluon else 32)
        assert images[job.key].resources.threads == (256 if gluon else 32)
    assert {job.source for job in plan.jobs} == {"tiny/large.py", "tiny/kernels.py"}


def test_the_fused_backward_pass_compiles_for_both_widths(tmp_path: Path) -> None:
    """Its two widths take different branches, and no virtual GPU executes them."""
    plan = plan_project(PROJECT, archs=["sm_90"], profile="core", only=Only(["flash_atomic"]))
    jobs = [job for job in plan.jobs if "dtype=fp16,mask=full" in job.label or "bwd_end" in job.label]
    part = replace(plan, jobs=tuple(jobs))
    images = compiled(part, tmp_path / "cache")
    threads = {job.label.partition(":")[0]: images[job.key].resources.threads for job in jobs}
    assert threads == {"flash_atomic.bwd_sums": 384, "flash_atomic.bwd_end": 256}


LARGEST = (
    "bwd_dk_dv:sm_90:dtype=fp32,dropout=true,mask=bias,width=128:0",
    "bwd_dk_dv:sm_90:dtype=fp16,dropout=true,mask=bias,width=224:1u",
    "bwd_dk_dv:sm_90:dtype=bf16,dropout=false,mask=full,width=256:2u",
    "bwd_dq:sm_90:dtype=fp32,dropout=true,mask=bias,width=48:0",
    "bwd_dq:sm_90:dtype=fp32,dropout=true,mask=bias,width=256:1u",
)
"""Images of the complete profile that used local memory with 16 warps, or with the registers that ptxas
chose."""


@pytest.mark.slow
def test_images_of_the_complete_profile_use_no_local_memory(tmp_path: Path) -> None:
    plan = plan_project(PROJECT, archs=["sm_90"], profile="full", only=Only(["flash"]))
    jobs = tuple(job for job in plan.jobs if job.label.partition(".")[2] in LARGEST)
    assert len(jobs) == len(LARGEST)
    part = replace(plan, jobs=tuple(replace(job, spills="reject") for job in jobs))
    images = compiled(part, tmp_path / "cache")
    assert [violations(job, images.resources(job.key)) for job in jobs] == [()] * len(jobs)
