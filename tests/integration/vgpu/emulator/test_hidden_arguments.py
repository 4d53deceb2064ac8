"""Hidden kernel arguments: grid sizes for `tl.num_programs`, all others by the code object's metadata, absent
ones when they are used."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import UnsupportedError
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.program import Emulator

pytestmark = pytest.mark.compiler
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SOFTMAX = """
@triton.jit
def kernel(out, x, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + row * x_stride + i, mask=i < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + row * out_stride + i, e / tl.sum(e, 0), mask=i < columns)
"""
COUNTS = """
@triton.jit
def kernel(out):
    at = out + 3 * (tl.program_id(0) + tl.program_id(1) * 2 + tl.program_id(2) * 6)
    tl.store(at, tl.num_programs(0))
    tl.store(at + 1, tl.num_programs(1))
    tl.store(at + 2, tl.num_programs(2))
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_persistent_softmax(arch: str) -> None:
    """Tutorial 02 as published: each program takes every n-th row."""
    types = {
        "out": "*fp32",
        "x": "*fp32",
        **dict.fromkeys(("x_stride", "out_stride", "rows", "columns"), "i32"),
    }
    made = compile_kernel(SOFTMAX, arch, types, constants={"BLOCK": 128}, num_warps=2)
    x = np.random.default_rng(2).standard_normal((11, 100)).astype(np.float32)
    out = np.zeros_like(x)
    launch(made.load(arch), [out, x, 100, 100, 11, 100], grid=(4, 1, 1), lds=made.lds)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(out - e / e.sum(1, keepdims=True)).max() < 1e-6


@pytest.mark.parametrize("arch", ARCHS)
def test_grid_sizes_of_all_axes(arch: str) -> None:
    out = np.zeros((24, 3), dtype=np.int32)
    launch(compile_kernel(COUNTS, arch, {"out": "*i32"}).load(arch), [out], grid=(2, 3, 4))
    assert (out == (2, 3, 4)).all()


HIDDEN = {
    "hidden_block_count_x": (4, 5), "hidden_block_count_y": (4, 6), "hidden_block_count_z": (4, 7),
        "hidden_group_size_x": (2, 64),
    "hidden_group_size_y": (2, 1), "hidden_group_size_z": (2, 1), "hidden_remainder_x": (2, 0),
        "hidden_remainder_y": (2, 0),
    "hidden_remainder_z": (2, 0), "hidden_global_offset_x": (8, 0), "hidden_global_offset_y": (8, 0),
        "hidden_global_offset_z": (8, 0),
    "hidden_grid_dims": (2, 3), "hidden_dynamic_lds_size": (4, 512), "hidden_none": (8, 0),
}  # fmt: skip
"""Sizes and values on a grid of 5 x 6 x 7 workgroups of 64 threads with 512 bytes of dynamic LDS."""
_BODY = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dword s6, s[0:1], 0x8
{body}
v_mov_b32_e32 v0, 0
s_waitcnt lgkmcnt(0)
v_mov_b32_e32 v1, s6
global_store_dword v0, v1, s[4:5]
"""
_POINTER = "        .size: 8\n        .value_kind: global_buffer\n        .address_space: global\n"
_SECOND = f"      - .offset: 8\n{_POINTER}"


def hidden_text(kind: str, size: int, body: str = "") -> str:
    """The text of a kernel that stores the low dword of a hidden argument."""
    text = assembly_text(_BODY.format(body=body), "gfx908", threads=64)
    assert _SECOND in text
    hidden = f"      - .offset: 8\n        .size: {size}\n        .value_kind: {kind}\n"
    return text.replace(_SECOND, hidden)


def hidden_kernel(kind: str, size: int, body: str = "") -> tuple[bytes, str]:
    """Image and text of it."""
    text = hidden_text(kind, size, body)
    return link(assemble(text, "gfx908")), text


def stored(kind: str, size: int, body: str = "") -> int:
    out = np.zeros(1, dtype=np.uint32)
    program = Emulator("gfx908").load(*hidden_kernel(kind, size, body))
    launch(program, [out], grid=(5, 6, 7), lds=512)
    return int(out[0])


@pytest.mark.parametrize("kind", HIDDEN)
def test_every_hidden_argument_that_a_launch_determines(kind: str) -> None:
    size, value = HIDDEN[kind]
    assert stored(kind, size) & (1 << 8 * min(size, 4)) - 1 == value


def test_an_absent_argument_may_be_loaded_but_not_used() -> None:
    stored("hidden_heap_v1", 8)
    use = "s_load_dwordx2 s[8:9], s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\ns_load_dword s6, s[8:9], 0x10"
    with pytest.raises(
        UnsupportedError, match="kernel uses hidden_heap_v1, which the virtual GPU does not provide"
    ):
        stored("hidden_heap_v1", 8, use)


POINTERS = ("dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id")
"""User SGPRs that kernels get which LLVM knows too little about, in their order."""


@pytest.mark.parametrize(
    ("at", "name"), [(0, "the dispatch packet"), (2, "the queue"), (6, "the dispatch id")]
)
def test_absent_user_sgprs_may_be_there_but_not_used(at: int, name: str) -> None:
    declared = "".join(f"\t\t.amdhsa_user_sgpr_{pointer} 1\n" for pointer in POINTERS)

    def value(pair: int) -> int:
        text = hidden_text("hidden_group_size_x", 2)
        for old, new in (
            ("s[4:5]", "s[10:11]"),  # behind the user SGPRs
            ("s6", "s12"),
            ("s[0:1]", f"s[{pair}:{pair + 1}]"),
            ("\t\t.amdhsa_user_sgpr_count 2\n", ""),
            ("\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1\n", declared),
        ):
            text = text.replace(old, new)
        out = np.zeros(1, dtype=np.uint32)
        launch(Emulator("gfx908").load(link(assemble(text, "gfx908")), text), [out])
        return int(out[0])

    assert value(4) & 0xFFFF == 64
    with pytest.raises(UnsupportedError, match=f"kernel uses {name}, which the virtual GPU does not provide"):
        value(at)
