"""Archs that passes of Triton refuse are compiled with another arch's name in those passes, and their own
everywhere else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from triton._C.libtriton import amd
from triton.backends.compiler import GPUTarget

from aotforge.compile.triton_compiler import lower, warm_up
from aotforge.errors import ExecutionError, ToolchainError
from aotforge.targets.amd.backend import AMD
from tests.support.families import PROJECT, architectures, plan_of
from vgpu.code_object import read_elf
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.program import Emulator, LaunchRequest
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
ARCHS = architectures()
_HINTS: dict[tuple[int], list[list[Any]]] = {(0,): [["tt.pointer_range", 32]]}
"""Triton uses buffer loads and stores."""
ALIASED = tuple(name for name in ARCHS.amd if ARCHS.aliases(name))


def compiled(arch: str, aliases: tuple[tuple[str, str], ...]) -> tuple[bytes, str]:
    signature = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    with AMD.aliased(aliases):
        image, text, _ = lower(
            warm_up, GPUTarget("hip", arch, 32), signature, {"BLOCK": 256}, dict(_HINTS), {"num_warps": 4}
        )
    return image, text


def test_the_archs_of_one_generation_have_the_same_code() -> None:
    """So what the virtual GPU finds out about gfx1030's images holds for all of them. The ELF header names
    the arch: a GPU loads its own."""
    images = {arch: compiled(arch, ARCHS.aliases(arch)) for arch in ALIASED}
    assert len(images) == 7
    assert len({read_elf(image).section(".text").data for image, _ in images.values()}) == 1
    assert len({image for image, _ in images.values()}) == 7
    for arch, (_, text) in images.items():
        assert parse_listing(text).arch == arch
        assert not re.search(r"v_wmma|v_dual_|v_mfma", text)


def test_without_its_alias_triton_refuses_the_arch(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="PassManager::run failed"):
        compiled("gfx1030", ())
    assert "unsupported target: 'gfx1030'" in capfd.readouterr().err


def doubled(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """500 of 512 ones, doubled by two workgroups."""
    x = np.ones(512, dtype=np.float32)
    program = Emulator("gfx1030").load(link(assemble(text, "gfx1030")), text)
    program.launch(
        LaunchRequest(grid=(2, 1, 1), arguments=[x.ctypes.data, 500], memory=Memory({"x": x}), checks=True)
    )
    return x


def test_buffer_resources_of_the_alias_are_those_of_the_arch() -> None:
    _, text = compiled("gfx1030", ARCHS.aliases("gfx1030"))
    assert re.search(r"buffer_store_dword\w* ", text) and text.count("0x31027000") == 1
    assert doubled(text).tolist() == [2] * 500 + [1] * 12
    # OOB_SELECT "structured": the launch succeeds and writes nothing
    assert doubled(text.replace("0x31027000", "0x1027000")).tolist() == [1] * 512
    with pytest.raises(ExecutionError, match="0x00027000, is not valid on this arch"):
        doubled(text.replace("0x31027000", "0x27000"))


def test_passes_get_their_own_arch_back() -> None:
    before = {name: getattr(amd.passes.ttgpuir, f"add_{name}") for name, _ in ARCHS.aliases("gfx1030")}
    compiled("gfx1030", ARCHS.aliases("gfx1030"))
    assert {name: getattr(amd.passes.ttgpuir, f"add_{name}") for name in before} == before


def test_a_pass_that_triton_lacks_is_named() -> None:
    with (
        pytest.raises(ToolchainError, match="no pass to_nowhere"),
        AMD.aliased((("to_nowhere", "gfx1100"),)),
    ):
        pytest.fail("the pass exists")


def test_aliases_are_part_of_the_keys_of_their_archs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(arch: str) -> set[str]:
        return {job.key for job in plan_of(PROJECT / "kernels", profile="smoke", arch=arch).jobs}

    before = {arch: keys(arch) for arch in ("gfx1030", "gfx1100")}
    monkeypatch.setattr(
        type(ARCHS), "aliases", lambda self, arch: (("membar", "gfx1200"),) if arch == "gfx1030" else ()
    )
    after = {arch: keys(arch) for arch in before}
    assert after["gfx1100"] == before["gfx1100"]
    assert not after["gfx1030"] & before["gfx1030"]
