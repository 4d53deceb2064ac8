"""Functions that a kernel calls (`noinline`): in the image before and after it, nested, with a stack in
scratch."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.handwritten import caught, kernel, run
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.program import Emulator

pytestmark = pytest.mark.compiler
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
NESTED = """
@triton.jit(noinline=True)
def square(a):
    return a * a

@triton.jit(noinline=True)
def polynomial(a, b):
    return square(a) + square(b) * 2 + 1

@triton.jit
def kernel(x, factor):
    p = tl.program_id(0)
    v = tl.load(x + p)
    tl.store(x + p, polynomial(v, factor) - square(v + 1))
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_functions_that_call_functions(arch: str) -> None:
    made = compile_kernel(NESTED, arch, {"x": "*fp32", "factor": "fp32"}, num_warps=1)
    assert "s_swappc_b64" in made.asm
    x = np.arange(5, dtype=np.float32)
    expected = x * x + 2 * 9 + 1 - (x + 1) ** 2
    launch(made.load(arch), [x, 3.0], grid=(5, 1, 1), lds=made.lds)
    assert np.array_equal(x, expected)


def test_a_call_is_verified_against_the_image() -> None:
    made = compile_kernel(NESTED, "gfx942", {"x": "*fp32", "factor": "fp32"}, num_warps=1)
    altered = made.asm.replace("@rel32@lo+4", "@rel32@lo+8", 1)
    assert altered != made.asm
    with pytest.raises(DecodeError, match="is not the image"):
        Emulator("gfx942").load(made.binary, altered)


@pytest.mark.parametrize(
    "line", ["v_add3_u32 v0, v1, v2, kernel@rel32@lo+4", "v_and_or_b32 v0, kernel@rel32@lo+4, v1, v2"]
)
def test_constants_of_the_linker_are_where_compilers_have_them(line: str) -> None:
    """Encodings of two words have them behind the second one."""
    with pytest.raises(DecodeError, match="have constants of the linker"):
        kernel(f"{line}\n", "gfx1100", threads=32)


def test_a_call_returns_behind_itself_and_a_jump_has_to_meet_an_instruction() -> None:
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_call_b64 s[8:9], target
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[6:7]
    s_endpgm
    target:
    v_mov_b32_e32 v2, 7
    {adjust}
    s_setpc_b64 s[8:9]
    """
    assert (run(body.format(adjust=""))[:128] == 7).all()
    fault = caught(body.format(adjust="s_add_u32 s8, s8, 2"))
    assert "where no instruction begins" in fault.what and "s_setpc_b64" in fault.cause
