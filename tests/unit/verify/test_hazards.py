"""Hazards in code: each is found where it is, on the archs that have it, along every path."""

from __future__ import annotations

import pytest

from aotforge.verify.hazards import find_hazards
from tests.support.families import hazards
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.targets import emulated_target

PARITY = "v_dual_add_f32 v19, v24, v23 :: v_dual_add_f32 v20, v30, v28"
DPP = "v_add_f32_dpp v4, v4, v4 row_shr:1 row_mask:0xf bank_mask:0xf"
READER = "v_dual_mov_b32 v1, v4 :: v_dual_mov_b32 v2, v5"
STORE = "global_store_b32 v0, v1, s[2:3]"
WAIT = "s_waitcnt_vscnt null, 0x0"


def found(*lines: str, arch: str = "gfx1150") -> list[str]:
    """Names of the hazards of a kernel's text, and the lines that are reported."""
    code = "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines)
    text = (
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n\t.text\nk:\n{code}\n\ts_endpgm\n'
        f"\t.section .rodata\n\t.amdhsa_kernel k\n"
    )
    return [
        one.removeprefix("hazard ")
        for one in find_hazards(parse_listing(text), emulated_target(arch), hazards())
    ]


def names(*lines: str, arch: str = "gfx1150") -> list[str]:
    return [one.partition(":")[0] for one in found(*lines, arch=arch)]


def test_sources_of_one_parity() -> None:
    report = found(PARITY, "s_nop 0", PARITY, arch="gfx1100")
    assert len(report) == 1
    assert "dual-issue-parity: " in report[0] and "line 4: " in report[0] and "line 6: " in report[0]
    assert "https://github.com/llvm/llvm-project/pull/220348" in report[0]
    assert names(PARITY, arch="gfx1201") == []
    assert names(PARITY.replace("v30", "v31"), arch="gfx1100") == []
    second = "v_dual_fmamk_f32 v19, v24, 0x3f000000, v23 :: v_dual_add_f32 v20, v31, v29"
    assert names(second) == ["dual-issue-parity"] and names(second.replace("v23", "v22")) == []


def test_many_places_are_counted() -> None:
    assert "; and 2 more places" in found(*[PARITY] * 5)[0]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((DPP, READER), True),
        ((READER, DPP), False),
        ((DPP, "v_mov_b32_e32 v4, v9", READER), False),
        ((DPP, "v_mov_b32_e32 v3, v9", READER), True),
        ((DPP, "global_load_b32 v4, v0, s[2:3]", READER), False),
        (("v_permlanex16_b32 v4, v6, s0, s1", READER), True),
        # over a jump, and around a loop
        ((DPP, "s_cbranch_scc1 .LBB0_1", "v_mov_b32_e32 v4, v9", ".LBB0_1:", READER), True),
        ((".LBB0_1:", READER, DPP, "s_cbranch_scc1 .LBB0_1"), True),
        ((DPP, "s_branch .LBB0_1", READER, ".LBB0_1:"), False),
        # a pair that accumulates reads its result
        ((DPP, "v_dual_fmac_f32 v4, v10, v11 :: v_dual_mov_b32 v1, v5"), True),
        ((DPP, "v_dual_mul_f32 v4, v10, v11 :: v_dual_mov_b32 v1, v5"), False),
    ],
)
def test_pairs_behind_dpp(lines: tuple[str, ...], *, expected: bool) -> None:
    assert names(*lines) == ["dual-issue-after-dpp"] * expected
    assert names(*lines, arch="gfx1100") == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((STORE, "s_barrier"), True),
        ((STORE, WAIT, "s_barrier"), False),
        ((STORE, "s_waitcnt_vscnt null, 0x1", "s_barrier"), True),
        ((STORE, "s_waitcnt vmcnt(0)", "s_barrier"), True),
        ((WAIT, STORE, "s_barrier"), True),
        (("s_barrier", STORE), False),
        ((".LBB0_1:", "s_barrier", STORE, "s_cbranch_scc1 .LBB0_1"), True),
        ((STORE, "s_cbranch_scc1 .LBB0_1", WAIT, ".LBB0_1:", "s_barrier"), True),
        (("scratch_store_b32 off, v1, off", "s_barrier"), False),
        (("buffer_store_b32 v1, v0, s[0:3], 0 offen", "s_barrier"), True),
        (("global_atomic_add_f32 v0, v1, s[2:3]", "s_barrier"), True),
        (("global_load_b32 v1, v0, s[2:3]", "s_barrier"), False),
    ],
)
def test_stores_before_barriers(lines: tuple[str, ...], *, expected: bool) -> None:
    assert names(*lines, arch="gfx1100") == ["store-before-barrier"] * expected


def test_stores_before_the_barriers_of_gfx12() -> None:
    store, signal = "global_store_b32 v0, v1, s[2:3]", ("s_barrier_signal -1", "s_barrier_wait -1")
    assert names(store, *signal, arch="gfx1201") == ["store-before-barrier"]
    assert names(store, "s_wait_storecnt 0x0", *signal, arch="gfx1201") == []
    assert names(store, "s_wait_storecnt_dscnt 0x0", *signal, arch="gfx1201") == []


def test_gfx9_waits_for_stores_with_its_loads() -> None:
    assert names("global_store_dword v0, v1, s[2:3]", "s_barrier", arch="gfx908") == []


LDS_STORE = "ds_store_b128 v1, v[2:5]"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((LDS_STORE, "s_barrier"), True),
        ((LDS_STORE, "s_waitcnt lgkmcnt(0)", "s_barrier"), False),
        ((LDS_STORE, "s_waitcnt vmcnt(0)", "s_barrier"), True),
        (("ds_load_b128 v[2:5], v1", "s_barrier"), False),
        (("s_waitcnt lgkmcnt(0)", ".LBB0_1:", "s_barrier", LDS_STORE, "s_cbranch_scc1 .LBB0_1"), True),
    ],
)
def test_stores_to_lds_before_barriers(lines: tuple[str, ...], *, expected: bool) -> None:
    assert names(*lines, arch="gfx1100") == ["shared-store-before-barrier"] * expected
    if expected:
        assert "num_stages=1" in found(*lines, arch="gfx1100")[0]


@pytest.mark.parametrize(
    ("line", "hazard", "archs", "others"),
    [
        ("v_dot2_bf16_bf16 v1, v2, v3, v4", "bf16-dot-truncates", ("gfx1100", "gfx1201"), ()),
        ("buffer_atomic_add_f32 v1, v0, s[0:3], 0 offen", "buffer-atomic-dropped", ("gfx908", "gfx1100"),
            ("gfx942", "gfx950", "gfx1201")),
    ],
)  # fmt: skip
def test_instructions(line: str, hazard: str, archs: tuple[str, ...], others: tuple[str, ...]) -> None:
    for arch in archs:
        assert names(line, arch=arch) == [hazard]
    for arch in others:
        assert names(line, arch=arch) == []


TRANSPOSE = "ds_read_b64_tr_b16 v[2:3], v1"
SAVE, RESTORE = "s_and_saveexec_b64 s[4:5], vcc", "s_or_b64 exec, exec, s[4:5]"
INNER, OUT = "s_and_saveexec_b64 s[6:7], vcc", "s_or_b64 exec, exec, s[6:7]"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((TRANSPOSE,), False),
        ((SAVE, TRANSPOSE), True),
        ((SAVE, RESTORE, TRANSPOSE), False),
        ((SAVE, INNER, OUT, TRANSPOSE), True),
        ((SAVE, INNER, OUT, RESTORE, TRANSPOSE), False),
        ((SAVE, "s_cbranch_execz .LBB0_1", "v_mov_b32_e32 v9, v8", ".LBB0_1:", RESTORE, TRANSPOSE), False),
        ((SAVE, "s_mov_b64 exec, -1", TRANSPOSE), False),
        (("s_andn2_b64 exec, exec, s[4:5]", TRANSPOSE), True),
        (("v_cmpx_eq_u32_e64 s[2:3], v0, v1", TRANSPOSE), True),
    ],
)
def test_transposes_with_lanes_off(lines: tuple[str, ...], *, expected: bool) -> None:
    assert names(*lines, arch="gfx950") == ["transpose-with-partial-exec"] * expected


def test_cures_of_a_job() -> None:
    every = hazards()
    assert every.cures("gfx1100") == ("dual-issue-parity",)
    assert every.cures("gfx1100", 2) == ("dual-issue-parity", "shared-store-before-barrier")
    assert every.cures("gfx908", 2) == ()
    assert every.cures("gfx1030", 2, {"fp16"}) == ("shared-store-before-barrier",)
    assert every.cures("gfx908", 1, {"fp8e5", "bf16"}) == ("fp8-to-bf16",)
    assert every.cures("gfx908", 1, {"float8e4nv"}) == ("fp8-to-bf16", "fp16-to-fp8e4nv")
    assert every.cures("gfx950", 1, {"float8e4nv"}) == ()
    assert every.cures("sm_90", 1, {"fp8e5"}) == ("fp8-to-bf16",)
    assert every.cures("gfx908", 1, {"u8", "i32"}) == ()
    assert every.cures("gfx908", 1, {"uint8", "fp32"}) == ("float-to-u8",)
