"""What `build` prints of the images that it made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from aotforge.compile.image_set import resources, spills
from aotforge.pipeline.build_release import BuildReport
from tests.unit.compile.test_resources import GFX908, stats


def test_spills_to_memory_are_listed_and_the_harmless_ones_counted() -> None:
    memory = spills(resources(stats(spilled_registers=2, scratch_bytes=12), GFX908))
    lanes = spills(resources(stats(spilled_scalar_registers=3), GFX908))
    report = SimpleNamespace(
        shared=0, images=4, packs=("amd-gfx908",), compiled=4, cached=0, executed=0, known=0, damaged=(),
        release=SimpleNamespace(verified=False), spills=(f"a: {lanes}", f"b: {memory}", f"c: {lanes}"),
    )  # fmt: skip
    assert BuildReport.made(cast("BuildReport", report))[1:] == [
        f"spills: b: {memory}",
        "2 images spill scalar registers to lanes of other registers, not to memory; --json lists them",
    ]
