"""Real code objects from the tiny family: what images hold, and that nothing of the host reaches them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_one, find_job
from aotforge.compile.model import Resources
from aotforge.errors import CompileError, ResourceError, UnknownNameError
from aotforge.targets.amd.backend import register_waves
from aotforge.targets.backend import CodeObjectStats
from tests.integration.compile.builds import build, entries, kinds
from tests.support.families import KERNEL, SPILLING, TINY, architectures, plan_of, write_family
from vgpu.code_object import metadata

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def tiny_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    _, events = build(TINY, folder)
    assert kinds(events) == {"scanned": 1, "compiled": 9}
    return folder


def test_every_job_has_its_image_and_the_second_build_compiles_nothing(tiny_cache: Path) -> None:
    plan = plan_of(TINY)
    before = entries(tiny_cache)
    images, events = build(TINY, tiny_cache)
    assert kinds(events) == {"scanned": 1}
    assert list(images) == [job.key for job in plan.jobs]
    assert entries(tiny_cache) == before
    for job in plan.jobs:
        image = images[job.key]
        assert image.symbol == "axpy"
        assert image.digest == images.digest(job.key)
        assert [(a.offset, a.size) for a in image.arguments] == [
            (0, 8),
            (8, 8),
            (16, 4),
            (20, 4),
            (24, 8),
            (32, 8),
        ]
        assert image.resources == images.resources(job.key)
        assert image.resources.threads == 64 * dict(job.options)["num_warps"]
        assert ".amdhsa_kernel axpy" in image.asm
    # hints change nothing where a lane has one element
    assert len({image.digest for image in images.values()}) >= 6


def test_code_objects_are_elf_files_of_the_arch_and_the_note_reader_agrees_with_pyelftools(
    tiny_cache: Path,
) -> None:
    images, _ = build(TINY, tiny_cache)
    assert images
    for image in images.values():
        elf = ELFFile(io.BytesIO(image.binary))
        assert elf.header["e_machine"] == "EM_AMDGPU"
        notes = [n for segment in elf.iter_segments("PT_NOTE") for n in segment.iter_notes()]
        assert [note["n_name"] for note in notes] == ["AMDGPU"]
        found = metadata(image.binary)
        assert found["amdhsa.target"].endswith("gfx908")
        asm = dict(re.findall(r"^\s+\.(\w+):\s+(\d+)$", image.asm, re.MULTILINE))
        kernel = found["amdhsa.kernels"][0]
        for name in ("vgpr_count", "agpr_count", "sgpr_count", "wavefront_size", "kernarg_segment_size"):
            if name in asm:
                assert kernel[f".{name}"] == int(asm[name])


def test_no_path_of_this_machine_is_in_an_image_or_its_assembly(tiny_cache: Path) -> None:
    images, _ = build(TINY, tiny_cache)
    assert images
    for image in images.values():
        for text in (image.binary, image.asm.encode()):
            for path in (str(TINY), str(Path.home()), "/tmp", "site-packages", "kernels.py"):
                assert path.encode() not in text


_VECTORS = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(x + i + n)
    c = tl.load(x + i + 2 * n)
    tl.debug_barrier()
    tl.store(x + i, a * b + c)
    tl.store(x + i + n, a + b * c)
"""


def _scalars(count: int) -> str:
    """A kernel that keeps `count` scalars alive through a loop."""
    names = [f"s{number}" for number in range(count)]
    loads = "".join(f"    {name} = tl.load(x + {number})\n" for number, name in enumerate(names))
    uses = "".join(f"        v = v * 3 + {name}\n" for name in names)
    return (
        "\n@triton.jit\ndef kernel(x, n, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n"
        f"{loads}    v = tl.load(x + i + n)\n    for _ in range(n):\n{uses}    tl.store(x + i, v)\n"
    )


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_register_occupancy_equals_that_of_llvm(tmp_path: Path, arch: str) -> None:
    for block in (64, 512, 1024, 2048):
        write_family(tmp_path / "k", f"v{block}", _VECTORS, blocks=(block,), spills="report")
    for count in (40, 56, 72):
        write_family(tmp_path / "k", f"s{count}", _scalars(count), spills="report")
    images, _ = build(tmp_path / "k", tmp_path / "cache", arch=arch)
    architecture = architectures().amd[arch]
    seen = set()
    for image in images.values():
        found = re.search(r"^; Occupancy: (\d+)", image.asm, re.MULTILINE)
        assert found
        assert register_waves(_stats(image.resources), architecture) == int(found[1])
        seen.add(int(found[1]))
    assert len(seen) >= 3  # otherwise the comparison shows little


def _stats(r: Resources) -> CodeObjectStats:
    return CodeObjectStats(
        registers=r.registers,
        accumulation_registers=r.accumulation_registers,
        scalar_registers=r.scalar_registers,
        spilled_registers=r.spilled_registers,
        spilled_scalar_registers=r.spilled_scalar_registers,
        scratch_bytes=r.scratch_bytes,
        static_shared_bytes=0,
        dynamic_shared_bytes=r.dynamic_shared_bytes,
        warp_size=r.warp_size,
        num_warps=r.num_warps,
    )


def test_spills_to_memory_are_rejected_or_reported_as_the_rules_state(tmp_path: Path) -> None:
    write_family(tmp_path / "a", "reject", SPILLING, blocks=(1024,), waves=10, spills="reject")
    with pytest.raises(ResourceError, match=r"reject\.reject.*spills [1-9]\d* registers") as caught:
        build(tmp_path / "a", tmp_path / "cache")
    assert caught.value.exit_code == 1
    write_family(tmp_path / "b", "report", SPILLING, blocks=(1024,), waves=10, spills="report")
    images, events = build(tmp_path / "b", tmp_path / "cache")
    assert kinds(events)["spills"] == 1
    assert next(iter(images.values())).resources.spilled_registers > 0


@pytest.mark.parametrize("arch", ["gfx908", "gfx1101", "gfx1201"])
def test_more_lds_than_the_arch_has_is_rejected_with_any_rules(tmp_path: Path, arch: str) -> None:
    body = """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    square = tl.load(x + i[:, None] * BLOCK + i[None, :])
    tl.store(x + n + i[:, None] + i[None, :] * BLOCK, square)
    tl.store(x + i[None, :] + i[:, None] * BLOCK, tl.trans(square))
"""
    write_family(tmp_path / "k", "lds", body, blocks=(256,), warps=16, spills="report")
    needed = rf"lds\.lds.* \d+ bytes of shared memory, {arch} has 65536"
    with pytest.raises(ResourceError, match=needed) as caught:
        build(tmp_path / "k", tmp_path / "cache", arch=arch)
    assert "next step" in str(caught.value).lower()


def test_launch_geometry_in_hidden_arguments_is_allowed(tmp_path: Path) -> None:
    write_family(tmp_path / "k", text=KERNEL.replace("+ 1", "+ tl.num_programs(0)"))
    images, _ = build(tmp_path / "k", tmp_path / "cache")
    assert [a.kind for a in next(iter(images.values())).arguments] == [
        "global_buffer",
        "by_value",
        "global_buffer",
        "global_buffer",
    ]


def test_one_job_can_be_compiled_alone(tiny_cache: Path, tmp_path: Path) -> None:
    plan = plan_of(TINY)
    job = find_job([plan], "tiny.axpy:gfx908:dtype=bf16:1u")
    assert find_job([plan], job.key[:12]) == job
    image = compile_one(job, kernels_root=TINY, architectures=architectures(), scratch=tmp_path / "s")
    with Cache(tiny_cache) as cache:
        entry = cache.load(job.key)
    assert entry is not None
    assert image.binary == entry.binary
    with pytest.raises(UnknownNameError, match="unknown job"):
        find_job([plan], "tiny.axpi")


def test_one_failing_job_shows_its_complete_output(tmp_path: Path) -> None:
    write_family(tmp_path / "k", text=KERNEL.replace("tl.load(", "tl.lod("))
    plan = plan_of(tmp_path / "k")
    with pytest.raises(CompileError, match="lod"):
        compile_one(
            plan.jobs[0], kernels_root=tmp_path / "k", architectures=architectures(), scratch=tmp_path / "s"
        )
