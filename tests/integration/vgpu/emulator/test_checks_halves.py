"""Stores of 8 and 16 bits read one half of a register. From gfx11 on loads fill the halves separately, so
that the other half may be pending."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.handwritten import caught, run
from tests.support.triton_kernels import CompiledKernel, compile_kernel, launch
from vgpu.emulator.assembly import assemble, link

pytestmark = pytest.mark.compiler
TRANSPOSE = """
@triton.jit
def kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    tl.store(out + tl.trans(c) * rows + tl.trans(r), tl.trans(tl.load(x + r * columns + c)))
"""
SIZE = 64
NUMPY = {"fp16": "f2", "bf16": "u2", "i16": "i2", "i8": "i1"}
_WAIT = re.compile(r"\s*s_wait(cnt vmcnt\(\d+\)|_loadcnt 0x[0-9a-f]+)")
_HALF_STORE = re.compile(r"\s*ds_store_b(8|16)(_d16_hi)? v\d+, v\d+")


def transpose(arch: str, kind: str) -> CompiledKernel:
    types = {"x": f"*{kind}", "out": f"*{kind}", "rows": "i32", "columns": "i32"}
    return compile_kernel(TRANSPOSE, arch, types, constants={"BLOCK": SIZE}, num_warps=4)


def execute(kernel: CompiledKernel, arch: str, kind: str) -> bool:
    """Whether the result is right. Raises ExecutionError."""
    x = np.random.default_rng(7).integers(0, 100, (SIZE, SIZE)).astype(NUMPY[kind])
    out = np.zeros_like(x)
    launch(kernel.load(arch), [x, out, SIZE, SIZE], lds=kernel.lds)
    return bool(np.array_equal(out, x.T))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("kind", NUMPY)
def test_a_transpose_of_narrow_elements_passes_every_check(arch: str, kind: str) -> None:
    kernel = transpose(arch, kind)
    assert "d16_hi" in kernel.asm
    assert execute(kernel, arch, kind)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("kind", ["fp16", "i8"])
@pytest.mark.parametrize("high", [False, True])
def test_a_missing_wait_before_a_store_of_half_a_register_is_caught(arch: str, kind: str, high: bool) -> None:
    """The last wait for loads before the first store of a low or a high half is removed."""
    kernel = transpose(arch, kind)
    lines = kernel.asm.splitlines()
    stores = [i for i, line in enumerate(lines) if (m := _HALF_STORE.match(line)) and bool(m[2]) == high]
    at = max(i for i in range(stores[0]) if _WAIT.match(lines[i]))
    text = "\n".join([*lines[:at], *lines[at + 1 :]]) + "\n"
    altered = CompiledKernel(binary=link(assemble(text, arch)), asm=text, lds=kernel.lds)
    with pytest.raises(ExecutionError, match="before the load into it has been waited for"):
        execute(altered, arch, kind)


HALVES = """
s_load_b128 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_wait_kmcnt 0x0
v_mov_b32_e32 v2, 0
v_mov_b32_e32 v3, 0
s_mov_b32 s8, s6
s_and_b32 s9, s7, 0xffff
s_mov_b32 s10, 0x400
s_mov_b32 s11, 0x31004000
global_load_d16_b16 v2, v1, s[4:5]
global_load_d16_hi_b16 v2, v1, s[4:5] offset:4
s_wait_loadcnt {allowed}
{store}
s_wait_loadcnt 0x0
"""
STORES = (
    "global_store_{} v1, v2, s[6:7]",
    "global_store_{} v1, v2, s[6:7] offset:2",
    "buffer_store_{} v2, v1, s[8:11], null offen",
    "scratch_store_{} off, v2, off",
)


def _bodies(low: str, high: str) -> tuple[str, str]:
    """The low half is stored while the high one is pending; the high half after both loads."""
    return HALVES.format(allowed="0x1", store=low), HALVES.format(allowed="0x0", store=high)


def _weaker(body: str) -> str:
    """The wait before the store allows one more load."""
    return re.sub(r"(?<=loadcnt 0x)\d", lambda found: str(int(found[0]) + 1), body, count=1)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("store", STORES)
def test_a_store_needs_only_its_half(store: str, bits: int) -> None:
    low, high = _bodies(store.format(f"b{bits}"), store.format(f"d16_hi_b{bits}"))
    for body in (low, high):
        run(body, "gfx1201", scratch=16)
        assert "reads v2" in caught(_weaker(body), "gfx1201", scratch=16).what


@pytest.mark.parametrize("bits", [8, 16])
def test_a_store_to_lds_needs_only_its_half(bits: int) -> None:
    low, high = _bodies(f"ds_store_b{bits} v1, v2", f"ds_store_b{bits}_d16_hi v1, v2")
    for body in (low, high):
        run(body, "gfx1201", lds=1024)
        assert "reads v2" in caught(_weaker(body), "gfx1201", lds=1024).what


def test_an_address_in_the_register_of_the_data_needs_both_halves() -> None:
    body = HALVES.format(allowed="0x1", store="ds_store_b16 v2, v2")
    assert "reads v2" in caught(body, "gfx1201", lds=1024).what
