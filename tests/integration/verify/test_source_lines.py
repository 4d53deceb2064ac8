"""Instructions to source lines: compiled again with line info, proven to be the same machine code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import DecodeError, ExecutionError
from aotforge.plan.model import CompileJob, with_line_info
from aotforge.verify.verify_plan import source_map
from tests.integration.vgpu.emulator.attention_images import Images
from tests.support.families import HEADER, KERNEL, PROJECT, architectures, plan_of, write_family
from tests.support.runtime import CACHE
from tests.support.verified import compiled_images
from vgpu.emulator.lines import LineMap, read_lines
from vgpu.emulator.program import Emulator, LaunchRequest
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
_TEXT = HEADER + KERNEL
LOAD_AND_STORE = next(n for n, line in enumerate(_TEXT.splitlines(), 1) if "tl.store" in line)


def compiled(root: Path) -> tuple[CompileJob, KernelImage]:
    (job,) = (job for job in plan_of(root).jobs if not job.hints)
    return job, compiled_images(plan_of(root), root)[job.key]


def lines_of(job: CompileJob, image: KernelImage, root: Path, scratch: Path) -> LineMap:
    return source_map(job, image.binary, kernels_root=root, architectures=architectures(), scratch=scratch)


def test_loads_and_stores_lead_to_their_line_and_so_do_reports(tmp_path: Path) -> None:
    root = write_family(tmp_path / "kernels")
    job, image = compiled(root)
    found = lines_of(job, image, root, tmp_path / "scratch")
    program = Emulator("gfx908").load(image.binary, image.asm)
    accesses = [line for line in program.listing.lines if line.name.startswith(("global_", "buffer_"))]
    assert len(accesses) >= 2
    assert {found.at(line.address) for line in accesses} == {f"fam/fam.py:{LOAD_AND_STORE}"}
    assert found.at(-4) is None and found.at(1 << 30) is None
    assert str(tmp_path).encode() not in image.binary

    x = np.zeros(64, dtype=np.float32)
    with pytest.raises(ExecutionError) as caught:
        program.launch(
            LaunchRequest(
                grid=(2, 1, 1), arguments=[x.ctypes.data, 128], memory=Memory({"x": x}), source=found
            )
        )
    assert f"fam/fam.py:{LOAD_AND_STORE}" in caught.value.cause


def test_changed_sources_give_no_lines_instead_of_wrong_ones(tmp_path: Path) -> None:
    root = write_family(tmp_path / "kernels")
    _, image = compiled(root)
    changed = write_family(tmp_path / "kernels", text=KERNEL.replace("+ 1", "+ 2"))
    (job,) = (job for job in plan_of(changed).jobs if not job.hints)
    with pytest.raises(DecodeError, match="other machine code"):
        lines_of(job, image, changed, tmp_path / "scratch")
    with pytest.raises(DecodeError, match="no line info"):
        read_lines(image.asm, image.binary, image.binary)
    with pytest.raises(DecodeError, match="cannot be read"):
        read_lines(image.asm, image.binary[:200], image.binary)


def test_an_image_with_line_info_is_never_taken_for_the_shipped_one(tmp_path: Path) -> None:
    root = write_family(tmp_path / "kernels")
    (job,) = (job for job in plan_of(root).jobs if not job.hints)
    assert with_line_info(job).key not in {job.key, with_line_info(with_line_info(job)).key}
    assert job.toolchain != with_line_info(job).toolchain


def test_functions_that_are_inlined_name_their_callers(tmp_path: Path) -> None:
    images = Images("gfx908", CACHE, profile="quick")
    job = next(job for job in images.jobs if job.function == "attn_fwd")
    image = images.image(job)
    found = lines_of(job, image, PROJECT / "kernels", tmp_path / "scratch")
    places = {found.at(line.address) for line in images.program(job).listing.lines}
    assert any(
        place and place.startswith("flash/tiles.py:") and "called from flash/forward.py:" in place
        for place in places
    )
    assert any(place and place.startswith("triton/language/standard.py:") for place in places)
    assert not any(place and place.startswith("/") for place in places)
