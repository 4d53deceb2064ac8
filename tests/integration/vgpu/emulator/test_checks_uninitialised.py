"""Garbage that reaches global memory, an address, a branch or EXEC is a fault that names the first
instruction that read it; garbage that does not is none.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.integration.vgpu.emulator.handwritten import caught, run, without
from vgpu.emulator.decoded import Checks

pytestmark = pytest.mark.compiler

START = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_waitcnt lgkmcnt(0)
"""
STORE = "global_store_dword v1, v2, s[6:7]\n"


def _first_read(cause: str) -> str:
    """The instruction that a report names as the first to read garbage."""
    found = re.search(r"first read by line \d+: ([^(]*) \(byte", cause)
    assert found is not None, cause
    return found[1]


@pytest.mark.parametrize("arch", ["gfx908", "gfx1100"])
def test_a_register_that_was_never_written_reaches_an_output(arch: str) -> None:
    body = START + "v_add_f32_e32 v3, v9, v9\nv_mul_f32_e32 v2, v3, v3\n" + STORE
    if arch == "gfx1100":
        body = body.replace("dwordx4", "b128").replace("dword", "b32")
    fault = caught(body, arch)
    assert "stores uninitialised data to global memory" in fault.what
    assert "start of y" in fault.cause
    assert _first_read(fault.cause) == "v_add_f32_e32 v3, v9, v9"


@pytest.mark.parametrize("register", ["s2", "s14", "s16", "exec_hi"])
def test_user_registers_without_a_value_and_what_follows_them(register: str) -> None:
    """Of 15 user SGPRs two have a value; then comes the workgroup's id."""
    body = START + f"v_mov_b32_e32 v2, {register}\n" + STORE
    body = body.replace("dwordx4", "b128").replace("dword", "b32")
    assert "stores uninitialised data" in caught(body, "gfx1100", user=15).what
    assert not run(body.replace(register, "s15"), "gfx1100", user=15).any()


def test_garbage_that_does_not_matter_is_no_fault() -> None:
    masked = "v_and_b32_e32 v2, 0xff, v9\nv_lshrrev_b32_e32 v2, 8, v2\n"
    assert not run(START + masked + STORE).any()
    chosen = "v_cmp_gt_u32_e32 vcc, 1000, v0\nv_cndmask_b32_e32 v2, v9, v0, vcc\n"
    assert np.array_equal(run(START + chosen + STORE)[:128], np.arange(128))
    lanes = "v_cmp_gt_u32_e32 vcc, 10, v0\ns_and_saveexec_b64 s[8:9], vcc\nv_mov_b32_e32 v2, 5\n"
    assert list(run(START + lanes + STORE)[8:12]) == [5, 5, 0, 0]


def test_lanes_that_were_off_keep_their_garbage() -> None:
    body = (
        START
        + """v_cmp_gt_u32_e32 vcc, 10, v0
    s_and_saveexec_b64 s[8:9], vcc
    v_mov_b32_e32 v2, 5
    s_mov_b64 exec, s[8:9]
    """
    )
    fault = caught(body + STORE)
    assert "lane 10," in fault.cause


@pytest.mark.parametrize("load", ["ds_read_b32 v2, v1", "ds_read_b32 v2, v1 offset:512"])
def test_lds_that_was_never_stored(load: str) -> None:
    body = START + f"ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\n{load}\ns_waitcnt lgkmcnt(0)\n" + STORE
    if load.endswith("512"):
        assert _first_read(caught(body, lds=1024).cause) == load
    else:
        assert np.array_equal(run(body, lds=1024)[:128], np.arange(128))


def test_garbage_is_followed_through_lds() -> None:
    body = (
        START
        + """v_add_u32_e32 v3, 7, v9
    ds_write_b32 v1, v3
    s_waitcnt lgkmcnt(0)
    ds_read_u16 v2, v1 offset:2
    s_waitcnt lgkmcnt(0)
    """
    )
    assert _first_read(caught(body + STORE, lds=512).cause) == "v_add_u32_e32 v3, 7, v9"


@pytest.mark.parametrize(
    "permute", ["ds_bpermute_b32 v2, v1, {0}", "ds_permute_b32 v2, v1, {0}", "ds_bpermute_b32 v2, {0}, v1"]
)
def test_garbage_is_followed_through_permutes(permute: str) -> None:
    body = START + permute + "\ns_waitcnt lgkmcnt(0)\n" + STORE
    assert run(body.format("v0")).any()
    fault = caught(body.format("v9"))
    assert "stores uninitialised data to global memory" in fault.what
    assert _first_read(fault.cause) == permute.format("v9")


def test_scratch_that_was_never_stored() -> None:
    body = (
        START
        + """v_mov_b32_e32 v3, 7
    scratch_store_b32 off, v3, off
    s_waitcnt_vscnt null, 0x0
    scratch_load_b32 v2, off, off
    s_waitcnt vmcnt(0)
    """
    )
    body = (body + STORE).replace("dwordx4", "b128").replace("dword", "b32")
    assert list(run(body, "gfx1100", scratch=16)[:2]) == [7, 7]
    other = body.replace("v2, off, off", "v2, off, off offset:4")
    assert _first_read(caught(other, "gfx1100", scratch=16).cause).startswith("scratch_load_b32")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("v_and_b32_e32 v5, 12, v9\nglobal_load_dword v2, v5, s[4:5]",
            "uses uninitialised data as an address"),
        ("global_load_dword v2, v9, s[4:5]", "uses uninitialised data as an address"),
        ("v_and_b32_e32 v5, 12, v9\nds_read_b32 v2, v5", "uses uninitialised data as an address"),
        ("s_and_b32 s8, s20, 4\ns_load_dword s9, s[4:5], s8", "uses uninitialised data as an address"),
        ("s_cbranch_scc1 end", "branches on uninitialised data"),
        ("s_bitcmp1_b32 s20, 3\ns_cbranch_scc0 end", "branches on uninitialised data"),
        ("v_cmp_gt_i32_e32 vcc, 0, v9\ns_and_b64 vcc, vcc, 1\ns_cbranch_vccz end",
            "branches on uninitialised data"),
        ("v_cmp_gt_i32_e32 vcc, 0, v9\ns_and_saveexec_b64 s[8:9], vcc", "decide which lanes are on"),
        ("global_atomic_add v1, v9, s[6:7]", "stores uninitialised data to global memory"),
    ],
)  # fmt: skip
def test_garbage_that_decides_something(text: str, what: str) -> None:
    fault = caught(START + text + "\ns_nop 0\nend:\n", lds=512)
    assert what in fault.what
    assert "line" in fault.cause


def test_an_atomic_operation_on_unset_lds_is_a_fault() -> None:
    body = START + "ds_add_u32 v1, v0\n"
    assert "stores uninitialised data to LDS" in caught(body, lds=512).what
    run(START + "ds_write_b32 v1, v0\nds_add_u32 v1, v0\n", lds=512)


def test_matrix_products_of_garbage() -> None:
    clean = "".join(f"v_mov_b32_e32 v{n}, 0\n" for n in (4, 5, 6, 7))
    product = "v_accvgpr_write_b32 a{0}, 0\n"
    zeros = "".join(product.format(n) for n in range(4))
    multiply = (
        "v_mfma_f32_16x16x16f16 a[0:3], v[4:5], v[6:7], a[0:3]\ns_nop 7\ns_nop 3\nv_accvgpr_read_b32 v2, a0\n"
    )
    assert not run(START + clean + zeros + multiply + STORE).any()
    fault = caught(
        START + without(clean, "v_mov_b32_e32 v6, 0") + zeros + multiply.replace("v[4:5]", "v[6:7]") + STORE
    )
    assert _first_read(fault.cause).startswith("v_mfma")


def test_results_do_not_change_and_the_check_can_be_left_out() -> None:
    body = START + "v_and_b32_e32 v2, 0x400, v9\n" + STORE
    run(body, checks=Checks(uninitialised=False))


READ_Y = (
    START
    + """global_store_dword v1, v0, s[6:7]
s_waitcnt vmcnt(0)
global_load_dword v2, v1, s[6:7]
s_waitcnt vmcnt(0)
global_store_dword v1, v2, s[6:7] offset:512
"""
)
OUTPUT = Checks(unwritten=frozenset({"y"}))


def test_an_output_has_no_value_until_it_is_stored() -> None:
    assert np.array_equal(run(READ_Y, checks=OUTPUT)[128:], np.arange(128))
    early = without(READ_Y, "global_store_dword v1, v0, s[6:7]")
    run(early)
    fault = caught(early, checks=OUTPUT)
    assert "stores uninitialised data to global memory" in fault.what
    assert _first_read(fault.cause) == "global_load_dword v2, v1, s[6:7]"


def test_scalar_loads_of_an_output() -> None:
    load = "s_load_dwordx2 s[8:9], s[6:7], 0x4\n"
    body = START + "global_store_dword v1, v0, s[6:7] offset:4\ns_waitcnt vmcnt(0)\n" + load
    used = body + "s_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v2, s9\n" + STORE
    assert list(run(used, threads=64, checks=OUTPUT)[:2]) == [1, 1]
    early = without(used, "global_store_dword v1, v0, s[6:7] offset:4")
    run(
        without(early, "v_mov_b32_e32 v2, s9").replace("v1, v2,", "v1, v0,"), checks=OUTPUT
    )  # loaded, not used
    fault = caught(early, checks=OUTPUT)
    assert "stores uninitialised data to global memory" in fault.what
    assert _first_read(fault.cause) == load.strip()
    branch = START + load + "s_waitcnt lgkmcnt(0)\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 end\ns_nop 0\nend:\n"
    assert "branches on uninitialised data" in caught(branch, checks=OUTPUT).what


def test_adding_to_an_output_that_was_never_stored_is_a_fault() -> None:
    body = START + "global_atomic_add v1, v0, s[6:7]\n"
    run(body)
    assert "stores uninitialised data to global memory" in caught(body, checks=OUTPUT).what


def test_bytes_of_an_output_count_one_by_one() -> None:
    body = (
        START
        + """global_store_byte v1, v0, s[6:7] offset:1
    s_waitcnt vmcnt(0)
    global_load_ushort v2, v1, s[6:7]
    s_waitcnt vmcnt(0)
    v_lshrrev_b32_e32 v2, 8, v2
    """
    )
    run(body + STORE, checks=OUTPUT)
    assert (
        "stores uninit"
        in caught(without(body, "    v_lshrrev_b32_e32 v2, 8, v2") + STORE, checks=OUTPUT).what
    )


def test_an_unknown_output_is_refused() -> None:
    assert "no buffer z" in caught(START + STORE, checks=Checks(unwritten=frozenset({"z"}))).what
