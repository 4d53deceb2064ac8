"""Assembly text to values: operands, modifiers, constants, listings."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import DecodeError, UnknownNameError
from vgpu.emulator.assembly import assemble, check_text
from vgpu.emulator.binding import in_order
from vgpu.emulator.effects import waited
from vgpu.emulator.generate import OPCODES, handler, machine
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import merged, table
from vgpu.emulator.listing import parse_line, parse_listing
from vgpu.emulator.operands import bits, constant_bits, modifiers, number, operand
from vgpu.emulator.targets import emulated_target, emulated_targets


@given(file=st.sampled_from("vas"), first=st.integers(0, 90), words=st.integers(1, 16))
def test_registers(file: str, first: int, words: int) -> None:
    texts = [f"{file}[{first}:{first + words - 1}]"]
    if words == 1:
        texts += [f"{file}{first}", f"{file}[{first}]"]
    for text in texts:
        found = operand(text)
        assert (found.space, found.words) == ("scalar" if file == "s" else "vector", words)
        assert found.index == first + (256 if file == "a" else 0)


@given(st.integers(-(2**31), 2**32 - 1))
def test_integers(value: int) -> None:
    for text in (str(value), hex(value))[: 1 + (value >= 0)]:
        found = operand(text)
        assert (found.space, found.integer, found.neg) == ("constant", value, False)
        assert constant_bits(found, "u32") == value % 2**32


def test_signs_of_registers_and_numbers() -> None:
    assert operand("-v3").neg and not operand("-v3").abs
    assert operand("-|v3|").neg and operand("-|v3|").abs
    assert operand("neg(0)").neg and operand("neg(0)").integer == 0
    assert operand("sext(v3)").sext
    assert operand("-16").integer == -16 and not operand("-16").neg
    assert operand("-4.0").real == -4.0
    assert operand("v5.h").half == 1 and operand("v5.l").half == 0 and operand("v5").half is None
    assert operand("off").space == "none" and operand("src_scc").space == "status"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "v256",
            "s106",
            "v[3:2]",
            "x1",
            "v",
            "1.5.2",
            "0xg",
            "abs(neg(v1))",
            "|-v1|",
            "sext(-v1)",
            "exec:3",
        ),
        *("02", "-010", "0b11", "1_6", "v02", "s[010:011]", "--1", "-neg(1)", "hwreg(HW_REG_MODE, 023, 1)"),
    ],
)
def test_other_operands_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        operand(text)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.0", "f32", 0x3F800000),
        ("1.0", "u32", 0x3F800000),
        ("-0.5", "f16", 0xB800),
        ("2.0", "f64", 0x4000000000000000),
        ("0.15915494", "f32", struct.unpack("<I", struct.pack("<f", 0.15915494))[0]),
        ("-1", "u64", 2**64 - 1),
        ("0x7fffffff", "i64", 0x7FFFFFFF),
        ("0x80000000", "u64", 0x80000000),
        ("0x40000000", "f64", 0x4000000000000000),
        ("0.5", "u64", 0x3FE0000000000000),
        ("-1", "f64", 2**64 - 1),
    ],
)
def test_constants_take_the_type_of_their_operand(text: str, kind: str, value: int) -> None:
    assert constant_bits(operand(text), kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [("3.0", "f32"), ("0x80000000", "i64"), ("0.15915494", "u64"), ("65", "f64"), ("0x100000000", "u32")],
)
def test_constants_that_could_mean_two_things_are_refused(text: str, kind: str) -> None:
    with pytest.raises(DecodeError):
        constant_bits(operand(text), kind)


def test_modifiers() -> None:
    found = modifiers(["offset:16", "op_sel:[1,0,1]", "clamp", "dst_sel:WORD_1", "row_mask:0xf"])
    assert number(found, "offset") == 16 and number(found, "row_mask") == 15 and number(found, "dst_sel") == 6
    assert modifiers(["mul:4"]) == {"mul": 4} and modifiers(["div:2"]) == {"div": 2}
    assert bits(found, "op_sel", 0) == 5 and number(found, "clamp") == 1
    for wrong in (
        ["clamp:1"],
        ["offset"],
        ["offset:x"],
        ["frob"],
        ["mul:8"],
        ["div:4"],
        ["mul"],
        ["clamp", "clamp"],
        ["dst_sel:WORD_2"],
        ["op_sel:[1,"],
    ):
        with pytest.raises(DecodeError):
            modifiers(wrong)
    with pytest.raises(DecodeError):
        bits(modifiers(["op_sel:[2]"]), "op_sel", 0)


def test_lines() -> None:
    line = parse_line("v_mfma_f32_32x32x8f16 a[0:15], v[2:3], v[4:5], a[0:15]")
    assert (line.name, line.encoding, [o.words for o in line.operands]) == (
        "v_mfma_f32_32x32x8f16",
        "",
        [16, 2, 2, 16],
    )
    line = parse_line("v_add_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:0")
    assert (line.name, line.encoding, line.modifiers["quad_perm"]) == ("v_add_f32", "dpp", (1, 0, 3, 2))
    line = parse_line("global_load_dwordx4 v[0:3], v[4:5], off offset:-16")
    assert (line.operands[2].space, line.modifiers) == ("none", {"offset": -16})
    pair = parse_line("v_dual_mov_b32 v0, v1 :: v_dual_add_f32 v2, v3, v4")
    assert pair.partner is not None
    assert (pair.name, pair.partner.name, pair.encoding) == ("v_mov_b32", "v_add_f32", "dual")
    assert parse_line("s_waitcnt vmcnt(0) lgkmcnt(0)").operands == ()
    assert parse_line("s_endpgm").name == "s_endpgm"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v2, v3", ["v0", "v2"]),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v2, v0", ["v2", "v0"]),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0", ["spare", "v1", "v0"]),
    ],
)
def test_pairs_read_before_they_write(text: str, names: list[str]) -> None:
    assert [line.operands[0].text for line in in_order(parse_line(text))] == names


def test_a_pair_of_accumulations_into_each_other_is_refused() -> None:
    with pytest.raises(DecodeError, match="accumulate"):
        in_order(parse_line("v_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v1, v0, v2"))


TEXT = """
\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-gfx908"
\t.text
\t.type k,@function
k:                                      ; @k
; %bb.0:
\ts_mov_b32 s0, 1                         ; a comment
.LBB0_1:
\ts_cbranch_scc1 .LBB0_1
\ts_endpgm
.Lfunc_end0:
\t.section .rodata,"a",@progbits
\t.amdhsa_kernel k
\t\t.amdhsa_next_free_vgpr 9
\t.end_amdhsa_kernel
"""


def test_listings() -> None:
    listing = parse_listing(TEXT)
    assert (listing.kernel, listing.arch, listing.fields) == ("k", "gfx908", {"next_free_vgpr": 9})
    assert [line.name for line in listing.lines] == ["s_mov_b32", "s_cbranch_scc1", "s_endpgm"]
    assert listing.labels[".LBB0_1"] == 1
    assert listing.lines[0].number == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\ts_endpgm", "\t.long 3", "unknown directive"),
        ("s_mov_b32 s0, 1", "s_mov_b32 s0, what", r"line 7: s_mov_b32 s0, what: unknown operand"),
        ("gfx908", "frob", "not the assembly text"),
        (".amdhsa_kernel k", ".amdhsa_kernel other", "does not contain all of the kernel other"),
    ],
)
def test_listings_that_are_not_understood_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        parse_listing(TEXT.replace(old, new))


def test_the_table_generates_one_function_per_entry() -> None:
    text = machine("plain")
    assert len(OPCODES) == len(INSTRUCTIONS) > 600
    for name in OPCODES:
        assert f"void op_{name}(" in handler(name)
        assert f"void op_{name}(" in text


def test_tables_refuse_contradictions() -> None:
    with pytest.raises(ValueError, match="two types"):
        table("vector", {"v_x": "D.u32 = S0.u32 + S0.f32"})
    one = table("vector", {"v_x": "D.u32 = S0.u32"})
    with pytest.raises(ValueError, match="twice"):
        merged(one, one)
    assert table("vector", {"v_y": "D.f32 = S0.f32 * D.f32"})["v_y"].reads_d
    assert not table("scalar", {"s_y": "D.u32 = S0.u32; SCC = D.u32 != 0"})["s_y"].reads_d


def test_targets() -> None:
    assert {(t.lanes, t.generation) for t in emulated_targets().values()} == {
        (64, 9),
        (32, 10),
        (32, 11),
        (32, 12),
    }
    with pytest.raises(UnknownNameError, match="gfx909"):
        emulated_target("gfx909")


CHECKED = """\t.amdgcn_target "amdgpu9.08-amd-amdhsa-unknown-gfx908"
\t.text
\t.p2align\t8
add:                                    ; @add
; %bb.0:
\ts_load_dwordx2 s[0:1], s[4:5], 0x0
\tv_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, 0
.LBB0_1:
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel add
\t\t.amdhsa_kernarg_size 48
\t.end_amdhsa_kernel
\t.fill 256, 4, 3212836864
\t.set .Ladd.num_vgpr, max(23, 1)
\t.asciz "a;b\\""
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .offset: 0
        .name: x
    .sgpr_spill_count: 0
amdhsa.version:
  - 1
...
\t.end_amdgpu_metadata
"""


def test_texts_of_compilers_are_assembled() -> None:
    check_text(CHECKED)


@pytest.mark.parametrize(
    "line",
    [
        '\t.include "/etc/passwd"',
        '\t.incbin "/dev/zero"',
        '.INCLUDE "x"',
        '"\x2einclude" "x"',
        'label: .include "x"',
        'label : .include "x"',
        's_nop : .include "x"',
        "1: .long 1",
        ".text 1",
        '.set ".", .+4',
        ".set ., .+4",
        ".set HW_REG_WAVE_MODE, 3",
        "x = 1",
        "x.y = x.z + x.z",
        "1:",  # `s_branch 1` skips one word, whatever has this label
        '/* comment */ .include "x"',
        "s_nop 0 /*",
        '.ascii "',
        ". = . + 1000000000",
        ".org 1000000000",
        ".rept 1000000000",
        ".macro m",
        ".fill 1000000000, 4, 1",
        ".fill x, 4, 1",
        ".zero 9999999",
        ".p2align 31",
        's_nop 0\x0b.include "x"',
        '\t.amdgpu_metadata\n.include "x"',
        '\t.amdgpu_metadata\n- .include "x"',
    ],
)
def test_other_directives_are_refused(line: str) -> None:
    """LLVM's assembler reads files for a text."""
    with pytest.raises(DecodeError, match="compilers do not write"):
        assemble(CHECKED.replace("\t.section", f"{line}\n\t.section"), "gfx908")


@pytest.mark.parametrize(
    "line",
    [
        "v_add_f16_e64 v0, v1, v2 row_shl:010",
        "v_pk_add_f16 v0, v1, v2 op_sel:[0,01]",
        "ds_read_b32 v0, v1 offset:02",
        "ds_read_b32 v0, v1 offset:0b11",
    ],
)
def test_numbers_that_an_assembler_may_read_as_octal_ones_are_refused(line: str) -> None:
    with pytest.raises(DecodeError, match="unknown value"):
        parse_line(line)


@pytest.mark.parametrize("line", ["s_waitcnt 017", "s_waitcnt vmcnt(010)", "s_waitcnt vmcnt(0) lgkmcnt(x)"])
def test_waits_for_other_numbers_are_refused(line: str) -> None:
    with pytest.raises(DecodeError, match="not a number"):
        waited(parse_line(line), emulated_target("gfx908"))


@pytest.mark.parametrize(
    ("kind", "text"), [("f64", "0x10"), ("f64", "65"), ("u64", "-17"), ("i64", "0x1"), ("u16", "1.0")]
)
def test_constants_that_an_assembler_may_extend_otherwise_are_refused(kind: str, text: str) -> None:
    with pytest.raises(DecodeError, match=r"not as the compiler writes|as an integer"):
        constant_bits(operand(text), kind)
