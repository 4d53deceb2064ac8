"""Constants with one encoding and two spellings."""

from __future__ import annotations

import pytest

from aotforge.targets.amd.ambiguous import ambiguous_line


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("v_fma_mix_f32 v0, v1, 65535, v2", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0xffff, v2", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0xfffffff0, v2", "gfx908"),
        ("v_dot2_f32_f16 v2, v3, 0x3c00, v24", "gfx908"),
        ("v_dot2_f32_f16 v2, v3, 1.0, v24", "gfx942"),
        ("v_dot2_f32_f16 v2, v3, -|1.0|, v24", "gfx942"),
        ("v_cvt_pk_f32_bf8 v[0:1], 0x3f800000", "gfx942"),
        ("v_cvt_pk_f32_bf8 v[0:1], 1.0", "gfx942"),
        ("v_cvt_f32_fp8_e32 v0, 1.0", "gfx942"),
        ("v_pack_b32_f16 v0, v1, 65535 op_sel:[0,1,0]", "gfx908"),
        ("v_pack_b32_f16 v0, v1, -1 op_sel:[0,1,0]", "gfx908"),
        ("v_pack_b32_f16 v0, 1.0, v1 op_sel:[1,0,0]", "gfx908"),
        ("v_pk_max_i16 v8, 0x3f800000, v2", "gfx908"),
        ("v_pk_max_i16 v8, 0x40, v2", "gfx908"),
        ("v_add_u16_e32 v8, 65, v2", "gfx908"),
        ("scratch_load_dword v5, off, null offset:8", "gfx1030"),
    ],
)
def test_lines_that_are_refused(line: str, arch: str) -> None:
    assert ambiguous_line(f"kernel:\n\t{line} ; comment\n\ts_endpgm\n", arch) == line


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("v_fma_mix_f32 v0, v1, 1.0, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0x42000000, v2", "gfx1100"),
        ("v_add_u16 v8, 64, v2", "gfx908"),
        ("v_add_u16 v8, 0xfc00, v2", "gfx908"),
        ("v_cndmask_b16 v0.l, 0x7fff, v1.l, vcc_lo", "gfx1100"),
        ("v_dot2_f32_f16 v2, v3, v4, 0", "gfx908"),
        ("v_dot4_i32_i8 v2, v3, 0x1010101, 0", "gfx908"),
        ("v_mfma_f32_16x16x16f16 v[0:3], v[4:5], v[6:7], 1.0", "gfx908"),
        ("v_permlanex16_b32 v1, v2, -1, 0xfedcba98 op_sel:[1,0]", "gfx1100"),
        ("v_pk_mul_f16 v0, v1, 0.5 op_sel_hi:[1,0]", "gfx908"),
        ("v_and_b32_e32 v0, 0xffff, v1", "gfx908"),
        ("scratch_load_b32 v5, off, null offset:8", "gfx1100"),
        ("scratch_load_dword v5, off, s4 offset:8", "gfx1030"),
    ],
)
def test_lines_of_compilers(line: str, arch: str) -> None:
    assert ambiguous_line(f"kernel:\n\t{line}\n\ts_endpgm\n", arch) == ""
