"""Images of attention over pages, executed on all of their cases."""

from __future__ import annotations

import pytest

from aotforge.base.architectures import Profile
from aotforge.verify.verify_plan import verify_images
from tests.support.families import PROJECT, plan_of
from tests.support.runtime import CACHE
from tests.support.verified import compiled_images

pytestmark = pytest.mark.compiler
ROOT = PROJECT / "kernels"
OTHERS = ("add", "elementwise", "flash", "flash_atomic", "gemm", "rms_norm", "softmax")
KEEP: dict[str, tuple[bool | int | str, ...]] = {
    **{f"{family}.dtype": () for family in OTHERS},
    "dtype": ("fp16",),
}


@pytest.mark.parametrize(("arch", "cache", "width"), [("gfx908", "fp16", 256), ("gfx1100", "fp8e4nv", 64)])
def test_images_pass_all_cases(arch: str, cache: str, width: int) -> None:
    keep = {**KEEP, "flash_paged.cache": (cache,), "width": (width,)}
    own = Profile(description="of a test", complete=False, keep=keep)
    plan = plan_of(ROOT, arch=arch, own=own)
    images = compiled_images(plan, ROOT)
    report = verify_images(plan, images, kernels_root=ROOT, cache=CACHE, jobs=1)
    assert [verdict.outcome for verdict in report.verdicts] == ["passed"] * 4
    kernels = {verdict.label.split(":")[0] for verdict in report.verdicts}
    assert kernels == {f"flash_paged.{name}" for name in ("paged_attn", "paged_combine", "reshape_and_cache")}
