"""MODE.FP16_OVFL, which Triton sets before it converts to 8-bit floats: half results that overflow become the
largest number."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.handwritten import run
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.listing import parse_line

pytestmark = pytest.mark.compiler
ARCHS = ("gfx908", "gfx90a", "gfx1100", "gfx1201")
LARGEST, INFINITE = 0x7BFF, 0x7C00
CAST = """
@triton.jit
def kernel(x, out):
    i = tl.arange(0, 512)
    tl.store(out + i, tl.load(x + i).to(tl.float8e5))
"""


@pytest.mark.parametrize(
    ("arch", "name"), [("gfx908", "HW_REG_MODE"), ("gfx1100", "HW_REG_MODE"), ("gfx1201", "HW_REG_WAVE_MODE")]
)
def test_halves_that_overflow(arch: str, name: str) -> None:
    bench = Bench(arch)
    values = np.array([65504, 65519, 65520, 1e6, -1e6, np.inf, -np.inf, np.nan, 1.5], dtype=np.float32)
    bench.v[1][: len(values)] = values.view(np.uint32)
    plain = [0x7BFF, 0x7BFF, INFINITE, INFINITE, 0xFC00, INFINITE, 0xFC00, 0x7E00, 0x3E00]
    saturated = [0x7BFF, 0x7BFF, LARGEST, LARGEST, 0xFBFF, INFINITE, 0xFC00, 0x7E00, 0x3E00]
    convert = "v_cvt_f16_f32_e32 v2, v1" if arch == "gfx908" else "v_cvt_f16_f32_e32 v2.l, v1"
    for value, expected in ((1, saturated), (0, plain)):
        bench.run(f"s_setreg_imm32_b32 hwreg({name}, 23, 1), {value}")
        bench.run(convert)
        assert (bench.v[2][: len(values)] & 0xFFFF).tolist() == expected
        bench.run(f"s_getreg_b32 s5, hwreg({name}, 23, 1)")
        assert bench.s[5] == value


def test_packed_halves_that_overflow() -> None:
    bench = Bench("gfx908")
    bench.v[1][:] = 0x7BFF_FBFF
    bench.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1")
    bench.run("v_pk_add_f16 v2, v1, v1")
    assert (bench.v[2] == 0x7BFF_FBFF).all()
    bench.s[4] = 0
    bench.run("s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s4")
    bench.run("v_pk_add_f16 v2, v1, v1")
    assert (bench.v[2] == 0x7C00_FC00).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 1", "only MODE's bit 23, FP16_OVFL, is supported"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE), 1", "only MODE's bit 23, FP16_OVFL, is supported"),
        (
            "s_getreg_b32 s0, hwreg(HW_REG_HW_ID, 0, 32)",
            "the hardware register HW_REG_HW_ID is not supported",
        ),
    ],
)
def test_other_fields_are_refused(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        Bench("gfx908").run(text)


def test_an_operand_with_commas_in_parentheses_is_one() -> None:
    line = parse_line("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1")
    assert [one.text for one in line.operands] == ["hwreg(HW_REG_MODE, 23, 1)", "1"]


def test_a_wave_starts_without_it_and_shadows_follow() -> None:
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    v_and_b32_e32 v4, 0, v9
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1
    v_mov_b32_e32 v2, 0x49742400
    v_or_b32_e32 v2, v2, v4
    v_cvt_f16_f32_e32 v3, v2
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v3, s[6:7]
    """
    assert (run(body)[:128] == LARGEST).all()
    assert (
        run(body.replace("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "s_nop 0"))[:128] == INFINITE
    ).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_casts_to_8_bits(arch: str) -> None:
    """E5M2 rounds to nearest even; what is too large becomes the largest number."""
    made = compile_kernel(CAST, arch, {"x": "*fp32", "out": "*fp8e5"}, num_warps=1)
    assert "hwreg(HW_REG" in made.asm
    x = np.concatenate([np.linspace(-70000, 70000, 256), np.linspace(-1e-4, 1e-4, 256)]).astype(np.float32)
    out = np.zeros(512, dtype=np.uint8)
    launch(made.load(arch), [x, out], lds=made.lds)
    found = (out.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    exact = np.clip(x.astype(np.float64), -57344, 57344)
    assert np.isfinite(found).all()
    assert (np.abs(found - exact) <= np.maximum(np.abs(exact) / 8, 2.0**-17)).all()
