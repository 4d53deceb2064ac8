"""Loops of two stages for RDNA: LLVM drops a wait for LDS before a barrier, which compile jobs put back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotforge.verify.hazards import find_hazards
from aotforge.verify.interpreter.number_formats import DType, decode, encode
from tests.support.families import hazards
from tests.support.triton_kernels import compile_text, launch
from vgpu.errors import ExecutionError

pytestmark = pytest.mark.compiler
SIZE, INNER = 32, 96
_KERNEL = """
@triton.jit
def kernel(a, b, d, e, c, inner, S: tl.constexpr):
    m = tl.arange(0, S)
    n = tl.arange(0, S)
    k = tl.arange(0, S)
    total = tl.zeros((S, S), tl.float32)
    for s in range(0, inner, S):
        left = tl.load(a + m[:, None] * inner + s + k[None, :])
        total = tl.dot(left, tl.load(b + (s + k)[:, None] * S + n[None, :]), total)
        left = tl.load(d + m[:, None] * inner + s + k[None, :])
        total = tl.dot(left, tl.load(e + (s + k)[:, None] * S + n[None, :]), total)
    tl.store(c + m[:, None] * S + n[None, :], total)
"""


@pytest.mark.parametrize(
    ("arch", "dtype"), [("gfx1100", "fp16"), ("gfx1151", "bf16"), ("gfx1101", "fp32"), ("gfx1030", "fp32")]
)
def test_the_wait_is_put_back(tmp_path: Path, arch: str, dtype: DType) -> None:
    rng = np.random.default_rng(0)
    shapes = ((SIZE, INNER), (INNER, SIZE)) * 2
    stored = [encode(rng.standard_normal(shape).astype(np.float32), dtype) for shape in shapes]
    a, b, d, e = (decode(one, dtype) for one in stored)
    expected = a @ b + d @ e
    types = {**dict.fromkeys("abde", f"*{dtype}"), "c": "*fp32", "inner": "i32"}
    cures = hazards().cures(arch, 2, {dtype})
    assert "shared-store-before-barrier" in cures
    listed, raced = {}, {}
    for name, applied in {"raw": tuple(one for one in cures if "shared" not in one), "cured": cures}.items():
        (tmp_path / name).mkdir()
        compiled = compile_text(
            tmp_path / name, _KERNEL, types, constants={"S": SIZE}, arch=arch, cures=applied, num_stages=2
        )  # fmt: skip
        program, out = compiled.load(arch), np.zeros((SIZE, SIZE), np.float32)
        listed[name] = find_hazards(program.listing, program.target, hazards())
        try:
            launch(program, [*stored, out, INNER], lds=compiled.lds)
            raced[name] = ""
        except ExecutionError as error:
            raced[name] = str(error)
        assert np.abs(out - expected).max() < 1e-3 or raced[name]
    assert [text.partition(": ")[0] for text in listed["raw"]] == ["hazard shared-store-before-barrier"]
    assert "data race in LDS" in raced["raw"] and "num_stages=1" in raced["raw"]
    assert listed["cured"] == [] and raced["cured"] == ""
