"""Grids that HIP refuses are refused, on every arch and by every command; the largest ones are executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.handwritten import assembly_text, kernel
from vgpu.cli import main
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.measure import Banks, Meter
from vgpu.emulator.program import LaunchRequest
from vgpu.emulator.targets import emulated_targets
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
COUNT = """
v_mov_b32_e32 v1, 0
v_mov_b32_e32 v2, 1
{load} s[4:5], s[0:1], 0x0
{wait}
global_atomic_add{u32} v1, v2, s[4:5]
"""
SPELLINGS = {
    "gfx908": {"load": "s_load_dwordx2", "wait": "s_waitcnt lgkmcnt(0)", "u32": ""},
    "gfx1201": {"load": "s_load_b64", "wait": "s_wait_kmcnt 0x0", "u32": "_u32"},
}


def _launch(arch: str, grid: tuple[int, int, int], body: str = "s_nop 0", **options: object) -> int:
    """The number in the kernel's first buffer afterwards."""
    x = np.zeros(16, dtype=np.uint32)
    address = int(x.ctypes.data)
    request = LaunchRequest(grid=grid, arguments=[address, address], memory=Memory({"x": x}), **options)  # type: ignore[arg-type]
    kernel(body, arch, threads=emulated_targets()[arch].lanes).launch(request)
    return int(x[0])


@pytest.mark.parametrize("arch", emulated_targets())
def test_what_hip_refuses_is_refused(arch: str) -> None:
    lanes = emulated_targets()[arch].lanes
    most = (2**32 - 1) // lanes
    for grid, what in (
        ((1, 65537, 1), "65537 workgroups along y: a GPU takes 1 to 65536"),
        ((1, 1, 74464), "74464 workgroups along z: a GPU takes 1 to 65536"),
        ((most + 1, 1, 1), f"{most + 1} workgroups along x: a GPU takes 1 to {most} of {lanes} threads"),
        ((1, 0, 1), "0 workgroups along y"),
        ((-1, 1, 1), "-1 workgroups along x"),
    ):
        for options in ({}, {"checks": True}, {"meter": Meter(Banks())}):
            with pytest.raises(ExecutionError, match=what) as found:
                _launch(arch, grid, **options)
            assert "hipErrorInvalidConfiguration" in (found.value.cause or "")


@pytest.mark.parametrize("arch", SPELLINGS)
@pytest.mark.parametrize("grid", [(1, 65536, 1), (1, 1, 65536)])
def test_every_group_of_the_largest_grid_is_executed(arch: str, grid: tuple[int, int, int]) -> None:
    lanes = emulated_targets()[arch].lanes
    assert _launch(arch, grid, COUNT.format(**SPELLINGS[arch]), jobs=1) == 65536 * lanes


def test_the_command_names_the_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = assembly_text("s_nop 0", "gfx1201", threads=32)
    image, asm = tmp_path / "kernel.hsaco", tmp_path / "kernel.s"
    image.write_bytes(link(assemble(text, "gfx1201")))
    asm.write_text(text)
    arguments = [
        "run",
        str(image),
        "--asm",
        str(asm),
        "--grid",
        "1,74464",
        "--arg",
        f"zero:i32:4:{tmp_path}/y.npy",
        "--arg",
        "1",
    ]
    assert main(arguments) != 0
    assert "74464 workgroups along y: a GPU takes 1 to 65536" in capsys.readouterr().err
