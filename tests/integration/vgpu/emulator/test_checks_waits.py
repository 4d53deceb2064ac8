"""Wait counters: a register that a load has not delivered yet is neither read nor overwritten. Each wait of
small kernels is removed and weakened in turn, on archs of each generation of counters.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.handwritten import caught, run, without
from tests.support.triton_kernels import CompiledKernel, compile_kernel, launch
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.decoded import Checks
from vgpu.emulator.listing import parse_line
from vgpu.emulator.targets import emulated_target
from vgpu.emulator.waits import LOADS, LOCAL, SCALAR, STORES, waited

pytestmark = pytest.mark.compiler

GFX9 = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
global_load_dword v3, v1, s[4:5] offset:4
s_waitcnt vmcnt(1)
v_add_u32_e32 v2, 1, v2
s_waitcnt vmcnt(0)
v_add_u32_e32 v3, 1, v3
ds_write_b32 v1, v2
ds_write_b32 v1, v3 offset:512
ds_read_b32 v4, v1
ds_read_b32 v5, v1 offset:512
s_waitcnt lgkmcnt(1)
v_add_u32_e32 v4, v4, v4
s_waitcnt lgkmcnt(0)
v_add_u32_e32 v4, v4, v5
global_store_dword v1, v4, s[6:7]
"""
GFX11 = """
s_load_b128 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_b32 v2, v1, s[4:5]
global_load_b32 v3, v1, s[4:5] offset:4
s_waitcnt vmcnt(1)
v_add_nc_u32_e32 v2, 1, v2
s_waitcnt vmcnt(0)
v_add_nc_u32_e32 v3, 1, v3
ds_store_b32 v1, v2
ds_store_b32 v1, v3 offset:512
ds_load_b32 v4, v1
ds_load_b32 v5, v1 offset:512
s_waitcnt lgkmcnt(1)
v_add_nc_u32_e32 v4, v4, v4
s_waitcnt lgkmcnt(0)
v_add_nc_u32_e32 v4, v4, v5
global_store_b32 v1, v4, s[6:7]
"""
GFX12 = (
    GFX11.replace("s_waitcnt lgkmcnt(0)\nglobal", "s_wait_kmcnt 0x0\nglobal")
    .replace("s_waitcnt vmcnt(1)", "s_wait_loadcnt 0x1")
    .replace("s_waitcnt vmcnt(0)", "s_wait_loadcnt 0x0")
    .replace("s_waitcnt lgkmcnt(1)", "s_wait_dscnt 0x1")
    .replace("s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0")
)
KERNELS = {
    "gfx908": GFX9,
    "gfx90a": GFX9,
    "gfx942": GFX9,
    "gfx950": GFX9,
    "gfx1100": GFX11,
    "gfx1201": GFX12,
}
_COUNT = re.compile(r"(?<=\()\d(?=\))|(?<=0x)\d")


def _waits(body: str) -> list[str]:
    return [line for line in body.splitlines() if line.startswith("s_wait")]


@pytest.mark.parametrize("arch", KERNELS)
def test_a_kernel_with_its_waits_passes(arch: str) -> None:
    x = np.arange(129)
    expected = 2 * (x[:128] + 1) + x[1:] + 1
    assert np.array_equal(run(KERNELS[arch], arch, lds=1024)[:128], expected)


@pytest.mark.parametrize("arch", KERNELS)
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("change", ["removed", "weakened"])
def test_every_wait_is_needed(arch: str, number: int, change: str) -> None:
    lines = KERNELS[arch].splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("s_wait")][number]
    if change == "removed":
        lines.pop(at)
    else:
        lines[at] = _COUNT.sub(lambda found: str(int(found[0]) + 1), lines[at])
    fault = caught("\n".join(lines), arch, lds=1024)
    assert re.search(r"(reads|overwrites) [vs]\d+ before the load into it has been waited for", fault.what)
    assert re.search(
        r"wave \d+, lane \d+, line \d+: .*; loaded by line \d+: (s|global|ds)_(load|read)", fault.cause
    )


def test_overwriting_what_is_loaded_is_a_fault() -> None:
    body = GFX9.replace("s_waitcnt vmcnt(1)\n", "v_mov_b32_e32 v2, 0\ns_waitcnt vmcnt(1)\n")
    assert "overwrites v2" in caught(body, lds=1024).what


def test_loads_of_one_kind_may_overwrite_each_other_where_they_return_in_order() -> None:
    twice = GFX9.replace("v2, v1, s[4:5]\n", "v3, v1, s[4:5]\nglobal_load_dword v2, v1, s[4:5]\n", 1)
    run(twice, lds=1024)
    twice = GFX12.replace("v2, v1, s[4:5]\n", "v3, v1, s[4:5]\nglobal_load_b32 v2, v1, s[4:5]\n", 1)
    assert "overwrites v3" in caught(twice, "gfx1201", lds=1024).what


def test_scalar_loads_come_back_in_any_order() -> None:
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_load_dwordx2 s[6:7], s[0:1], 0x8
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(1)
    global_load_dword v2, v1, s[4:5]
    """
    assert "reads s4" in caught(body).what
    run(body.replace("lgkmcnt(1)", "lgkmcnt(0)"))


def test_an_lds_load_is_complete_when_fewer_operations_than_its_successors_are_outstanding() -> None:
    """Whichever of the scalar loads are back: with one operation outstanding, the older of two LDS loads is
    not."""
    body = """
    v_lshlrev_b32_e32 v1, 2, v0
    ds_write_b32 v1, v0
    ds_read_b32 v2, v1
    ds_read_b32 v3, v1
    s_load_dwordx2 s[6:7], s[0:1], 0x8
    s_waitcnt lgkmcnt(1)
    v_add_u32_e32 v2, 1, v2
    s_waitcnt lgkmcnt(0)
    """
    run(body, lds=512)
    assert (
        "reads v3" in caught(body.replace("v_add_u32_e32 v2, 1, v2", "v_add_u32_e32 v3, 1, v3"), lds=512).what
    )


def test_stores_count_with_loads_before_gfx10_and_apart_from_there_on() -> None:
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    global_store_dword v1, v0, s[6:7]
    s_waitcnt vmcnt(1)
    v_add_u32_e32 v2, 1, v2
    """
    run(body)
    newer = body.replace("dwordx4", "b128").replace("dword", "b32").replace("v_add_u32", "v_add_nc_u32")
    assert "reads v2" in caught(newer, "gfx1100").what


def test_invalidating_caches_counts_as_a_load_on_gfx12() -> None:
    at = "global_load_b32 v3, v1, s[4:5] offset:4\ns_wait_loadcnt 0x1\n"
    assert at in GFX12
    run(
        GFX12.replace(at, at.replace("s_wait_loadcnt 0x1", "global_inv scope:SCOPE_DEV\ns_wait_loadcnt 0x2")),
        "gfx1201",
        lds=1024,
    )
    weak = at.replace("s_wait_loadcnt 0x1", "global_inv scope:SCOPE_DEV\ns_wait_loadcnt 0x3")
    assert "reads v2" in caught(GFX12.replace(at, weak), "gfx1201", lds=1024).what


def test_a_branch_waits_for_its_vcc() -> None:
    body = """
    s_load_dwordx2 vcc, s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_cbranch_vccz end
    v_mov_b32_e32 v1, 0
    end:
    """
    run(body)
    assert "reads vcc_lo" in caught(without(body, "    s_waitcnt lgkmcnt(0)")).what


def test_the_check_can_be_left_out() -> None:
    run(without(GFX9, "s_waitcnt vmcnt(0)"), lds=1024, checks=Checks(waits=False))


@pytest.mark.parametrize(
    ("arch", "text", "expected"),
    [
        ("gfx908", "s_waitcnt vmcnt(3) lgkmcnt(0)", {LOADS: 3, LOCAL: 0, SCALAR: 0}),
        ("gfx908", "s_waitcnt vmcnt(63) & expcnt(0)", {LOADS: 63}),
        ("gfx908", "s_waitcnt 0xc07f", {LOCAL: 0, SCALAR: 0}),
        ("gfx908", "s_waitcnt 0xf70", {LOADS: 0}),
        ("gfx1030", "s_waitcnt 0xc07f", {LOCAL: 0, SCALAR: 0}),
        ("gfx1030", "s_waitcnt 0x3f75", {LOADS: 5}),
        ("gfx1030", "s_waitcnt 0x7f74", {LOADS: 20}),
        ("gfx1100", "s_waitcnt 0x3f7", {LOADS: 0}),
        ("gfx1100", "s_waitcnt_vscnt null, 0x2", {STORES: 2}),
        ("gfx1201", "s_wait_loadcnt_dscnt 0x302", {LOADS: 3, LOCAL: 2}),
        ("gfx1201", "s_wait_idle", {LOADS: 0, STORES: 0, LOCAL: 0, SCALAR: 0}),
        ("gfx908", "s_nop 0", {}),
    ],
)
def test_what_waits_wait_for(arch: str, text: str, expected: dict[int, int]) -> None:
    assert waited(parse_line(text), emulated_target(arch)) == expected


HALVES = """
s_load_b128 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_wait_kmcnt 0x0
v_mov_b32_e32 v2, 0
global_load_d16_b16 v2, v1, s[4:5]
global_load_d16_hi_b16 v2, v1, s[4:5] offset:4
s_wait_loadcnt 0x1
s_wait_loadcnt 0x0
global_store_b32 v1, v2, s[6:7]
"""


def test_halves_of_a_register_are_loaded_apart_from_gfx11_on() -> None:
    x = np.arange(129)
    assert np.array_equal(run(HALVES, "gfx1201")[:128], x[:128] | x[1:] << 16)
    assert "reads v2" in caught(without(HALVES, "s_wait_loadcnt 0x0"), "gfx1201").what
    both = HALVES.replace("d16_hi_b16", "d16_b16")
    assert "overwrites v2" in caught(both, "gfx1201").what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("v_cvt_f32_f16_e32 v3, v2.l", None),
        ("v_cvt_f32_f16_e32 v2, v2.l", "overwrites v2"),
        ("v_cvt_f32_f16_e32 v3, v2.h", "reads v2"),
        ("v_add_nc_u16 v2.l, v2.l, v2.l", None),
        ("v_add_nc_u16 v2.h, v2.l, v2.l", "overwrites v2"),
        ("global_load_d16_b16 v2, v1, s[4:5]", None),
        ("global_load_d16_b16 v2, v2, s[4:5]", "reads v2"),
    ],
)
def test_an_operand_means_the_halves_that_it_names(text: str, what: str | None) -> None:
    """The high half of v2 is still loaded."""
    body = (
        HALVES[: HALVES.index("global_load_d16_b16")]
        + "global_load_d16_hi_b16 v2, v1, s[4:5]\n"
        + text
        + "\n"
    )
    if what is None:
        run(body, "gfx1201")
    else:
        assert what in caught(body, "gfx1201").what


def test_a_load_of_half_a_register_may_take_its_address_from_it() -> None:
    body = HALVES.replace("v_mov_b32_e32 v2, 0", "v_mov_b32_e32 v2, v1").replace(
        "d16_b16 v2, v1", "d16_b16 v2, v2"
    )
    run(body, "gfx1201")


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


STORED_HALVES = """
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
HALF_STORES = (
    "global_store_{} v1, v2, s[6:7]",
    "global_store_{} v1, v2, s[6:7] offset:2",
    "buffer_store_{} v2, v1, s[8:11], null offen",
    "scratch_store_{} off, v2, off",
    "ds_store_{} v1, v2",
)


def _bodies(low: str, high: str) -> tuple[str, str]:
    """The low half is stored while the high one is pending; the high half after both loads."""
    return STORED_HALVES.format(allowed="0x1", store=low), STORED_HALVES.format(allowed="0x0", store=high)


def _weaker(body: str) -> str:
    """The wait before the store allows one more load."""
    return re.sub(r"(?<=loadcnt 0x)\d", lambda found: str(int(found[0]) + 1), body, count=1)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("store", HALF_STORES)
def test_a_store_needs_only_its_half(store: str, bits: int) -> None:
    high = f"b{bits}_d16_hi" if store.startswith("ds_") else f"d16_hi_b{bits}"
    for body in _bodies(store.format(f"b{bits}"), store.format(high)):
        run(body, "gfx1201", scratch=16, lds=1024)
        assert "reads v2" in caught(_weaker(body), "gfx1201", scratch=16, lds=1024).what


def test_an_address_in_the_register_of_the_data_needs_both_halves() -> None:
    body = STORED_HALVES.format(allowed="0x1", store="ds_store_b16 v2, v2")
    assert "reads v2" in caught(body, "gfx1201", lds=1024).what
