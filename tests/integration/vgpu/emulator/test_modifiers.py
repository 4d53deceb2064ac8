"""Modifiers of operands and instructions, and the MODE register: signs, clamp, DPP, SDWA, constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.handwritten import kernel, run
from tests.integration.vgpu.emulator.models.numbers import Array
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.listing import parse_line

F32 = np.float32
CDNA, RDNA = Bench("gfx908"), Bench("gfx1100")


def _floats(bench: Bench, index: int, *values: float) -> None:
    bench.v[index] = np.resize(np.array(values, dtype=F32), bench.lanes).view(np.uint32)


def _read(bench: Bench, index: int = 20) -> Array:
    return np.asarray(bench.v[index].copy().view(F32))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v_add_f32 v20, v0, v1", -1.5),
        ("v_add_f32_e64 v20, -v0, v1", 2.5),
        ("v_add_f32_e64 v20, |v0|, v1", 2.5),
        ("v_add_f32_e64 v20, -|v1|, v0", -2.5),
        ("v_fma_f32 v20, v0, -v1, neg(4.0)", -3.0),
        ("v_add_f32_e64 v20, v0, v1 clamp", 0.0),
        ("v_add_f32_e64 v20, v0, -v1 clamp", 0.0),
        ("v_add_f32_e64 v20, -v0, -v1 clamp", 1.0),
        ("v_mul_f32 v20, 0.5, v0", -1.0),
        ("v_mul_f32 v20, 0x40400000, v0", -6.0),
        ("v_mul_f32 v20, s4, v0", -20.0),
        ("v_cndmask_b32_e64 v20, -v0, |v1|, 0", 2.0),
        ("v_cndmask_b32_e64 v20, v1, -|v0|, -1", -2.0),
    ],
)
def test_signs_clamps_and_constants(text: str, expected: float) -> None:
    for bench in (CDNA, RDNA):
        bench.exec = bench.full
        _floats(bench, 0, -2.0)
        _floats(bench, 1, 0.5)
        bench.s[4] = F32(10).view(np.uint32)
        bench.run(text)
        assert set(_read(bench)) == {F32(expected)}


def test_clamp_saturates_unsigned_sums() -> None:
    CDNA.exec = CDNA.full
    CDNA.v[0], CDNA.v[1] = 0xFFFFFFF0, 0x20
    for text, expected in (
        ("v_add_u32_e64 v20, v0, v1 clamp", 0xFFFFFFFF),
        ("v_add_u32_e64 v20, v0, v1", 0x10),
        ("v_sub_u32_e64 v20, v1, v0 clamp", 0),
        ("v_sub_u32_e64 v20, v0, v1 clamp", 0xFFFFFFD0),
        ("v_subrev_u32_e64 v20, v0, v1 clamp", 0),
        ("v_add_u16_e64 v20, v0, v1 clamp", 0xFFFF),
        ("v_add_u16_e64 v20, v0, v1", 0x10),
        ("v_sub_u16_e64 v20, v1, v0 clamp", 0),
        ("v_sub_u16_e64 v20, v1, v0", 0x30),
        ("v_sub_u16_e64 v20, v0, v1 clamp", 0xFFD0),
        ("v_subrev_u16_e64 v20, v0, v1 clamp", 0),
    ):
        CDNA.run(text)
        assert set(CDNA.v[20]) == {expected}
    with pytest.raises(DecodeError, match="clamp"):
        CDNA.run("v_add_i32 v20, v0, v1 clamp")


LANES = np.arange(64)
PATTERNS: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[1,0,3,2]": lambda n: n ^ 1,
    "quad_perm:[0,0,2,2]": lambda n: n & ~1,
    "row_shl:3": lambda n: n + 3 if n % 16 + 3 < 16 else None,
    "row_shr:1": lambda n: n - 1 if n % 16 else None,
    "row_ror:4": lambda n: n // 16 * 16 + (n + 12) % 16,
    "row_mirror": lambda n: n // 16 * 16 + 15 - n % 16,
    "row_half_mirror": lambda n: n // 8 * 8 + 7 - n % 8,
    "row_bcast:15": lambda n: n // 16 * 16 - 1 if n >= 16 else None,
    "row_bcast:31": lambda n: 31 if n >= 32 else None,
    "wave_shr:1": lambda n: n - 1 if n else None,
    "wave_shl:1": lambda n: n + 1 if n < 63 else None,
    "wave_ror:1": lambda n: (n - 1) % 64,
    "wave_rol:1": lambda n: (n + 1) % 64,
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("bound", [False, True])
@settings(max_examples=10, deadline=None)
@given(exec_=st.integers(0, 2**64 - 1), rows=st.integers(0, 15), banks=st.integers(0, 15))
def test_dpp_reads_the_pattern_and_writes_enabled_lanes(
    pattern: str, bound: bool, exec_: int, rows: int, banks: int
) -> None:
    CDNA.exec = exec_
    CDNA.v[0], CDNA.v[20] = LANES + 100, LANES + 500
    suffix = " bound_ctrl:0" if bound else ""
    CDNA.run(f"v_mov_b32_dpp v20, v0 {pattern} row_mask:{rows:#x} bank_mask:{banks:#x}{suffix}")
    for lane in range(64):
        source = PATTERNS[pattern](lane)
        readable = source is not None and exec_ >> source & 1
        written = (
            exec_ >> lane & 1
            and rows >> lane // 16 & 1
            and banks >> lane // 4 % 4 & 1
            and (readable or bound)
        )
        expected = lane + 500 if not written else 100 + (source or 0) if readable else 0
        assert CDNA.v[20][lane] == expected


@pytest.mark.parametrize("pattern", ["row_share:5", "row_xmask:3"])
def test_dpp_of_later_archs(pattern: str) -> None:
    RDNA.exec = RDNA.full
    RDNA.v[0] = np.arange(32)
    RDNA.run(f"v_mov_b32_dpp v20, v0 {pattern} row_mask:0xf bank_mask:0xf")
    lanes = np.arange(32)
    expected = lanes // 16 * 16 + 5 if "share" in pattern else lanes ^ 3
    assert np.array_equal(RDNA.v[20], expected)


ADD_ONE = "v_add_f32_e64_dpp v20, v0, {} row_xmask:1 row_mask:0xf bank_mask:0xf bound_ctrl:1"


@pytest.mark.parametrize("second", ["1.0", "s4"])
def test_dpp_of_a_constant_or_scalar(second: str) -> None:
    """gfx115x and gfx12 allow them as second sources; elsewhere the encoding has another meaning."""
    for arch in ("gfx1150", "gfx1201"):
        bench = Bench(arch)
        bench.exec = 0xFFFF_FFFD
        bench.s[4] = F32(1).view(np.uint32)
        bench.v[0] = np.arange(32, dtype=F32).view(np.uint32)
        bench.v[20] = 7
        bench.run(ADD_ONE.format(second))
        expected = (np.arange(32) ^ 1).astype(F32) + 1
        expected[0] = 1  # lane 1 is off: bound control makes it zero
        assert np.array_equal(np.delete(_read(bench), 1), np.delete(expected, 1))
        assert bench.v[20, 1] == 7
    for arch in ("gfx908", "gfx1030", "gfx1100"):
        with pytest.raises(DecodeError, match="needs vector registers"):
            Bench(arch).run(ADD_ONE.format(second))
    with pytest.raises(DecodeError, match="needs vector registers"):
        Bench("gfx1201").run("v_mov_b32_dpp v20, 1.0 row_xmask:1 row_mask:0xf bank_mask:0xf")


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100"])
def test_the_assembler_does_not_encode_such_dpp_elsewhere(arch: str) -> None:
    """A compiler that folds an immediate into DPP fails, then, and makes no wrong image."""
    with pytest.raises(DecodeError, match="assembler refuses"):
        kernel(ADD_ONE.format("1.0"), arch, threads=32)
    with pytest.raises(DecodeError, match="assembler refuses"):
        kernel(ADD_ONE.format("0x12345"), "gfx1201", threads=32)


def test_dpp_of_instructions_with_a_mask_as_their_result() -> None:
    RDNA.exec = 0xFFFF_0FF3
    on = np.array([RDNA.exec >> lane & 1 for lane in range(32)], dtype=bool)
    lanes = np.arange(32)
    RDNA.v[0], RDNA.v[1] = lanes * 0x1000_0001, 0xE000_0000
    read = np.where(on[lanes ^ 1], RDNA.v[0][lanes ^ 1], 0)  # a lane that is off is read as zero
    full = "row_xmask:1 row_mask:0xf bank_mask:0xf"
    RDNA.run(f"v_cmp_gt_u32_e64_dpp s4, v0, v1 {full} bound_ctrl:1")
    assert int(RDNA.s[4]) == sum(1 << lane for lane in lanes if on[lane] and read[lane] > 0xE000_0000)
    RDNA.v[20] = 7
    RDNA.run(f"v_add_co_u32_e64_dpp v20, vcc_lo, v0, v1 {full} bound_ctrl:1")
    sums = read.astype(np.uint64) + np.uint64(0xE000_0000)
    assert np.array_equal(RDNA.v[20], np.where(on, sums.astype(np.uint32), 7))
    assert int(RDNA.s[106]) == sum(1 << lane for lane in lanes if on[lane] and sums[lane] >> 32)
    for disabling in (f"{full}", "row_xmask:1 row_mask:0x3 bank_mask:0xf bound_ctrl:1"):
        with pytest.raises(DecodeError, match="disables lanes"):
            RDNA.run(f"v_cmp_gt_u32_e64_dpp s4, v0, v1 {disabling}")


SELECTED = {
    "DWORD": 0x84838281, "BYTE_0": 0x81, "BYTE_1": 0x82, "BYTE_2": 0x83, "BYTE_3": 0x84, "WORD_0": 0x8281,
        "WORD_1": 0x8483,
}  # fmt: skip


@pytest.mark.parametrize("select", SELECTED)
def test_sdwa_selects_a_part_of_a_source(select: str) -> None:
    CDNA.exec = CDNA.full
    CDNA.v[0], CDNA.v[1] = 0x84838281, 1
    tail = f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:DWORD"
    CDNA.run(f"v_add_u32_sdwa v20, v0, v1 {tail}")
    assert set(CDNA.v[20]) == {SELECTED[select] + 1}
    CDNA.run(f"v_add_u32_sdwa v20, sext(v0), v1 {tail}")
    size = 32 if select == "DWORD" else 8 if "BYTE" in select else 16
    assert set(CDNA.v[20]) == {(SELECTED[select] - (1 << size) + 1) % 2**32}


@pytest.mark.parametrize("select", SELECTED)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_PRESERVE"])
def test_sdwa_places_a_result(select: str, unused: str) -> None:
    CDNA.exec = CDNA.full
    CDNA.v[0], CDNA.v[1], CDNA.v[20] = 0xAABBCCDD, 0, 0x11223344
    tail = f"dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    CDNA.run(f"v_or_b32_sdwa v20, v0, v1 {tail}")
    old = (0x11223344 if unused == "UNUSED_PRESERVE" else 0).to_bytes(4, "little")
    data = bytes.fromhex("ddccbbaa")
    kind, _, place = select.partition("_")
    size = {"DWORD": 4, "BYTE": 1, "WORD": 2}[kind]
    at = int(place or 0) * size
    expected = data if size == 4 else old[:at] + data[:size] + old[at + size :]
    assert set(CDNA.v[20]) == {int.from_bytes(expected, "little")}


def test_halves_of_registers() -> None:
    for bench, high in ((CDNA, 0), (RDNA, 0x55550000)):  # before gfx10 the other half becomes zero
        bench.exec = bench.full
        bench.v[0], bench.v[1], bench.v[20] = 0x3C004000, 0x42004400, 0x55556666
        bench.run("v_add_f16 v20, v0, v1")
        assert set(bench.v[20]) == {high | 0x4600}  # 2 + 4
        bench.v[2], bench.v[20] = 0x00003C00, 0x55556666
        bench.run("v_fma_f16 v20, v0, v1, v2")  # keeps the other half everywhere
        assert set(bench.v[20]) == {0x55554880}  # 2 * 4 + 1
        bench.run("v_pack_b32_f16 v20, v0, v1 op_sel:[1,0,0]")
        assert set(bench.v[20]) == {0x44003C00}
    RDNA.v[20] = 0x55556666
    RDNA.run("v_add_f16 v20.h, v0.h, v1.l")
    assert set(RDNA.v[20]) == {0x45006666}  # 1 + 4
    RDNA.run("v_mov_b16 v20.l, v0.h")
    assert set(RDNA.v[20]) == {0x45003C00}


def test_mixed_precision_chooses_type_and_half_per_source() -> None:
    CDNA.exec = CDNA.full
    _floats(CDNA, 0, 3.0)
    CDNA.v[1], CDNA.v[20] = 0x40003C00, 0xFFFFFFFF  # halves 1.0 and 2.0
    CDNA.run("v_fma_mix_f32 v20, v0, v1, v1 op_sel:[0,1,0] op_sel_hi:[0,1,1]")
    assert set(_read(CDNA)) == {7.0}
    CDNA.run("v_fma_mixlo_f16 v20, v0, v0, neg(0)")
    assert set(CDNA.v[20]) == {0x40E04880}  # 9.0; the high half stays
    CDNA.run("v_fma_mixhi_f16 v20, -v0, |v0|, neg(0)")
    assert set(CDNA.v[20]) == {0xC8804880}


def test_a_64_bit_shift_takes_inline_constants_as_numbers() -> None:
    CDNA.exec = CDNA.full
    CDNA.v[0], CDNA.v[1] = 0x80000001, 0
    CDNA.run("v_lshlrev_b64 v[20:21], 4, v[0:1]")
    assert (set(CDNA.v[20]), set(CDNA.v[21])) == ({0x10}, {8})
    CDNA.run("v_cmp_gt_i64 vcc, -1, v[0:1]")
    assert CDNA.pair(106) == 0
    CDNA.set_pair(4, 2**64 - 1)
    CDNA.run("s_and_b64 s[6:7], s[4:5], -16")
    assert CDNA.pair(6) == 2**64 - 16


def test_real_constants_have_the_type_of_their_operand() -> None:
    CDNA.exec = CDNA.full
    CDNA.v[0] = CDNA.v[1] = 0
    CDNA.run("v_add_f16 v20, 1.0, v0")
    assert set(CDNA.v[20]) == {0x3C00}
    CDNA.run("v_mov_b32 v20, 1.0")
    assert set(CDNA.v[20]) == {0x3F800000}
    CDNA.run("v_add_f64 v[20:21], 1.0, v[0:1]")
    assert (set(CDNA.v[20]), set(CDNA.v[21])) == ({0}, {0x3FF00000})
    CDNA.run("v_pk_add_f16 v20, 1.0, v0 op_sel_hi:[0,1]")
    assert set(CDNA.v[20]) == {0x3C003C00}


def test_an_integer_of_16_bits_takes_the_bits_of_a_real_as_a_literal() -> None:
    """LLVM prints 0.5 so, where it stores a constant half for gfx12."""
    RDNA.exec = RDNA.full
    RDNA.v[20] = 0x55556666
    RDNA.run("v_mov_b16_e32 v20.h, 0x3800")
    assert set(RDNA.v[20]) == {0x38006666}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v_frobnicate_b32 v0, v1", "unknown instruction"),
        ("v_add_u32 v0, v1", "operands"),
        ("v_and_b32 v0, v1, v2 clamp", "clamp is not supported"),
        ("v_add_f32 v0, v1, v2 frob:1", "unknown operand"),
        ("v_add_f32 v0, v1, v300", "not a valid register"),
        ("v_add_f32 v0, v1, v[2:3]", "2 registers"),
        ("v_add_u32 v0, -v1, v2", "not a float"),
        ("v_mov_b32 s0, v1", "not valid for D"),
        ("s_mov_b32 v0, s1", "not valid for D"),
        ("s_ashr_i64 s[0:1], 0x80000000, s2", "extended"),
        ("v_mov_b32_dpp v0, v1 row_mask:0xf bank_mask:0xf", "DPP pattern"),
        ("v_mov_b32 v0, v1 row_shr:1", "not supported here"),
        ("v_mov_b32_dpp v0, v1 row_shr:1 dpp8:[0,1,2,3,4,5,6,7]", "unknown"),
        ("v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15] cbsz:1", "cbsz is not supported"),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3] cbsz:5", "beyond the instruction's blocks"),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3] cbsz:-1", "unknown value"),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3] cbsz:999999999999", "unknown value"),
        (
            "v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3] cbsz:1 abid:2",
            "beyond the instruction's blocks",
        ),
        ("v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3] blgp:1", "blgp is not supported"),
        ("v_mfma_f32_32x32x8f16 a[0:7], v[0:1], v[2:3], a[0:15]", "8 registers"),
        ("buffer_load_dword v0, v1, s[0:3], 0 offen lds", "lds is not supported"),
        ("s_cbranch_scc0 .nowhere", "unknown label"),
        ("ds_read_b32 v0, v1 gds", "gds is not supported"),
        ("global_load_dword v0, v1, off", "wrong number of registers"),
        ("s_sendmsg sendmsg(MSG_GS_ALLOC_REQ)", "unknown message"),
        ("v_add_f32 v0, v1, 3.0", "not an inline constant"),
        ("v_mov_b32_sdwa v0, v1 dst_sel:WORD_1 src0_sel:DWORD", "dst_sel without dst_unused"),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "gfx908 does not have"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        CDNA.run(text)
    with pytest.raises(DecodeError, match="bound_ctrl other"):  # it has the opposite meaning on gfx10
        RDNA.run("v_mov_b32_dpp v0, v1 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:0")


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("v_fma_mix_f32 v0, v1, 65535, v2", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0xffff, v2", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0xfffffff0, v2", "gfx908"),
        ("v_dot2_f32_f16 v2, v3, 0x3c00, v24", "gfx908"),
        ("v_dot2_f32_f16 v2, v3, 1.0, v24", "gfx942"),
        ("v_cvt_pk_f32_bf8 v[0:1], 0x3f800000", "gfx942"),
        ("v_cvt_pk_f32_bf8 v[0:1], 1.0", "gfx942"),
        ("v_pack_b32_f16 v0, v1, 65535 op_sel:[0,1,0]", "gfx908"),
        ("v_pack_b32_f16 v0, v1, -1 op_sel:[0,1,0]", "gfx908"),
        ("v_pack_b32_f16 v0, 1.0, v1 op_sel:[1,0,0]", "gfx908"),
        ("v_pk_max_i16 v8, 0x3f800000, v2", "gfx908"),
        ("v_pk_max_i16 v8, 0x40, v2", "gfx908"),
        ("v_add_u16_e32 v8, 65, v2", "gfx908"),
    ],
)
def test_small_constants_that_compilers_write_otherwise_are_refused(line: str, arch: str) -> None:
    """Their encoding is that of a constant which the emulator reads with another value."""
    with pytest.raises(DecodeError, match="not as the compiler writes"):
        Bench(arch).run(line)


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("v_fma_mix_f32 v0, v1, 1.0, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]", "gfx908"),
        ("v_fma_mix_f32 v0, v1, 0x42000000, v2", "gfx1100"),
        ("v_add_u16_e32 v8, 64, v2", "gfx908"),
        ("v_add_u16_e32 v8, 0xfc00, v2", "gfx908"),
        ("v_dot2_f32_f16 v2, v3, v4, 0", "gfx908"),
        ("v_mfma_f32_16x16x16f16 v[0:3], v[4:5], v[6:7], 1.0", "gfx908"),
        ("v_permlanex16_b32 v1, v2, -1, 0xfedcba98 op_sel:[1,0]", "gfx1100"),
        ("v_pk_mul_f16 v0, v1, 0.5 op_sel_hi:[1,0]", "gfx908"),
        ("v_and_b32_e32 v0, 0xffff, v1", "gfx908"),
    ],
)
def test_small_constants_of_compilers_are_read(line: str, arch: str) -> None:
    Bench(arch).run(line)


@pytest.mark.parametrize("modifiers", ["cbsz:-1 blgp:4", "blgp:-1", "cbsz:4 blgp:-5"])
def test_formats_below_zero_are_refused(modifiers: str) -> None:
    """They would be taken from the end of the list of formats, and be places behind its end in the
    interpreter."""
    a, b = "v[0:3]" if "cbsz" in modifiers else "v[0:7]", "v[8:11]"
    with pytest.raises(DecodeError, match="unknown value"):
        Bench("gfx950").run(f"v_mfma_f32_32x32x64_f8f6f4 v[16:31], {a}, {b}, v[16:31] {modifiers}")


@pytest.mark.parametrize("width", [16, 32])
def test_rows_of_lanes_are_swapped_where_an_arch_has_it(width: int) -> None:
    """32 lanes have no two rows of 32: the interpreter would swap parts of neighbouring registers."""
    for bench in (CDNA, RDNA):
        with pytest.raises(DecodeError, match="does not have"):
            bench.run(f"v_permlane{width}_swap_b32 v0, v1")


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
