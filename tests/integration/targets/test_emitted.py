"""Instructions that reports of other projects name: the pinned Triton does not emit them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.triton_kernels import compile_text

pytestmark = pytest.mark.compiler
PRODUCT = """
@triton.jit
def kernel(x, y, z, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(z + i, tl.load(x + i) * tl.load(y + i), mask=i < n)
"""
SUM = """
@triton.jit
def kernel(x, y, z, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(z + i, tl.load(x + i), mask=i < n, sem="relaxed")
"""
FAR = """
@triton.jit
def kernel(x, y, z, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i // 1024 < n
    tl.store(z + i, tl.load(x + i % 1024 + 67108864 * (i // 1024), mask, other=0.0), mask=mask)
"""
FLIP = """
@triton.jit
def kernel(x, y, z, n, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(z + i, tl.flip(tl.load(x + i), 1) * n)
"""


@pytest.mark.parametrize(
    ("text", "kind", "arch", "absent"),
    [
        (PRODUCT, "bf16", "gfx1100", "v_dot2_bf16_bf16"),
        (PRODUCT, "bf16", "gfx1201", "v_dot2_bf16_bf16"),
        (SUM, "fp32", "gfx908", "buffer_atomic"),
        (SUM, "fp32", "gfx1100", "buffer_atomic"),
        (FAR, "bf16", "gfx942", "buffer_load"),
        (FAR, "bf16", "gfx950", "buffer_load"),
        # the assembler refuses an immediate there
        (FLIP, "bf16", "gfx1030", "v_bfe_i32_e64_dpp"),
        (FLIP, "bf16", "gfx1100", "v_bfe_i32_e64_dpp"),
    ],
)
def test_what_is_not_emitted(tmp_path: Path, text: str, kind: str, arch: str, absent: str) -> None:
    types = {**dict.fromkeys("xyz", f"*{kind}"), "n": "i32"}
    assembly = compile_text(tmp_path, text, types, constants={"B": 32}, arch=arch).asm
    assert "s_endpgm" in assembly and absent not in assembly
