"""llvm-objdump 22 decodes every image to the same instructions as the text: two decoders by different people
agree."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from tests.integration.kernels.attention_call import Case
from tests.integration.vgpu.emulator.attention_images import Images, launches, tensors_of
from tests.integration.vgpu.emulator.test_attention_images import CASES, OTHERS
from tests.support.disassembly import (
    OBJDUMP,
    disagreements,
    disassemble,
    find_objdump,
    require_round_trip,
)
from tests.support.families import PROJECT, architectures, plan_project
from vgpu.emulator.decoded import Listing
from vgpu.emulator.program import Emulator, Program

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(find_objdump() is None, reason=f"{OBJDUMP} is not installed (Debian package llvm-22)"),
]
Maker = Callable[[str], Images]
SAMPLE = {"gfx908": "ragged", **OTHERS}
SWEPT = (*SAMPLE, "gfx906", "gfx1030")


def both(program: Program, image: KernelImage) -> tuple[Listing, Listing]:
    listing = program.listing
    return listing, disassemble(image.binary, listing.kernel, listing.arch)


def forward(images: Images, case: Case) -> tuple[Program, KernelImage]:
    images.prepare([case])
    job = images.job_of(launches(case, images.target, tensors_of(case))[0])
    return images.program(job), images.image(job)


@pytest.mark.parametrize("arch", SAMPLE)
def test_a_sample_of_images_is_decoded_alike(images_of: Maker, arch: str) -> None:
    images, case = images_of(arch), CASES[SAMPLE[arch]]
    images.prepare([case])
    found = launches(case, images.target, tensors_of(case))
    assert found
    for launch in found:
        job = images.job_of(launch)
        first, second = both(images.program(job), images.image(job))
        assert len(first.lines) > 20
        assert disagreements(first, second) == []
        require_round_trip(images.image(job).binary, second)


def test_every_kind_of_difference_is_reported(images_of: Maker) -> None:
    first, second = both(*forward(images_of("gfx1201"), CASES[SAMPLE["gfx1201"]]))

    def changed(index: int, **fields: object) -> Listing:
        lines = list(second.lines)
        lines[index] = replace(lines[index], **fields)  # type: ignore[arg-type]
        return replace(second, lines=tuple(lines))

    def where(prefix: str) -> int:
        return next(i for i, line in enumerate(second.lines) if line.name.startswith(prefix))

    load, pair = second.lines[where("global_load")], next(line for line in second.lines if line.partner)
    branch = second.lines[where("s_cbranch")]
    other_label = replace(
        branch.operands[0], text=next(t for t in second.labels if t != branch.operands[0].text)
    )
    planted = [
        changed(where("v_"), name="v_nop"),
        changed(where("v_add"), encoding="e99"),
        changed(where("global_load"), operands=load.operands[::-1]),
        changed(where("global_load"), modifiers={**load.modifiers, "offset": 12345}),
        changed(where("s_wait_"), text="s_wait_kmcnt 0x7"),
        changed(where("s_cbranch"), operands=(other_label,)),
        changed(second.lines.index(pair), partner=None),
        changed(0, next_address=2),
        replace(second, lines=second.lines[:-1]),
    ]
    for listing in planted:
        assert len(disagreements(first, listing)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("arch", SWEPT)
def test_every_quick_image_is_decoded_alike(tmp_path: Path, arch: str) -> None:
    plan = plan_project(PROJECT, archs=[arch], profile="quick")
    jobs = tuple(replace(job, spills="report") for job in plan.jobs)
    assert jobs
    folder, instructions = Path(os.environ.get("AOTFORGE_CACHE", tmp_path)), 0
    with Cache(folder) as cache:
        made = compile_plan(
            replace(plan, jobs=jobs),
            kernels_root=PROJECT / "kernels",
            architectures=architectures(),
            cache=cache,
        )
        for job in jobs:
            image = made[job.key]
            program = Emulator(arch, cache=folder).load(image.binary, image.asm)
            first, second = both(program, image)
            assert disagreements(first, second) == [], job.label
            instructions += len(first.lines)
    counts = f"{len(jobs)} images, {instructions} instructions"
    print(f"{arch}: {counts} decoded alike")  # noqa: T201 - shown with -s
