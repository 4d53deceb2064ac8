"""Output of llvm-objdump to values; needs no tool."""

from __future__ import annotations

import pytest

from aotforge.errors import DecodeError
from tests.support.disassembly import disagreements, parse_disassembly
from vgpu.code_object import Symbol
from vgpu.emulator.decoded import Listing

HEAD = "\nx.hsaco:\tfile format elf64-amdgpu\n\nDisassembly of section .text:\n\n0000000000001a00 <k>:\n"
LINES = (
    "\ts_load_dwordx2 s[10:11], s[4:5], 0x94                      // 000000001A00: C0060282 00000094\n",
    "\ts_cbranch_scc1 65533                                       // 000000001A08: BF85FFFD <k>\n",
    "\tv_dual_mov_b32 v32, 0xff800000 :: v_dual_lshlrev_b32 v3, 2, v2// 000000001A0C: CA2200FF 20020482 "
    "FF800000\n",
    "\ts_endpgm                                                   // 000000001A18: BF810000\n",
)
SYMBOL = Symbol(name="k", value=0x1A00, size=0x1C)


def test_instructions_with_addresses_pairs_and_branch_targets() -> None:
    behind = "\ts_code_end                                                 // 000000001A1C: BF9F0000\n"
    found = parse_disassembly(HEAD + "".join(LINES) + behind, SYMBOL, "gfx1100")
    assert [(line.address, line.next_address) for line in found.lines] == [
        (0, 8),
        (8, 12),
        (12, 24),
        (24, 28),
    ]
    assert [line.name for line in found.lines] == [
        "s_load_dwordx2",
        "s_cbranch_scc1",
        "v_mov_b32",
        "s_endpgm",
    ]
    assert found.labels == {"@0x0": 0}
    assert found.lines[2].partner is not None
    assert disagreements(found, found) == []


def _one(text: str) -> Listing:
    symbol = Symbol(name="k", value=0, size=8)
    return parse_disassembly(f"{HEAD}\t{text}    // 000000000000: BF810000 00000000\n", symbol, "gfx942")


def test_spellings_of_literals_and_of_encodings_that_the_assembler_chooses() -> None:
    literal = _one("s_add_u32 s0, s0, lit(0x40)")
    assert literal.lines[0].operands[2].integer == 0x40
    assert literal.lines[0].text == "s_add_u32 s0, s0, lit(0x40)"
    assert disagreements(_one("s_add_u32 s0, s0, 0x40"), literal) == []
    assert disagreements(_one("s_add_u32 s0, s0, 0x41"), literal) != []
    short, chosen = _one("v_add_u32 v0, v2, v0"), _one("v_add_u32_e32 v0, v2, v0")
    assert disagreements(short, chosen) == []
    assert disagreements(chosen, short) != []
    assert disagreements(_one("v_add_u32_e64 v0, v2, v0"), chosen) != []
    assert disagreements(short, _one("v_add_u32_sdwa v0, v2, v0")) != []
    assert disagreements(short, _one("v_add_nc_u32_e32 v0, v2, v0")) == []  # gfx11's name of it
    assert disagreements(short, _one("v_sub_u32_e32 v0, v2, v0")) != []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("65533", "65534", "no instruction begins"),
        ("65533", "s5", "not a number"),
        ("s_endpgm  ", ".long 0xbf810000", "not an instruction of gfx1100"),
        ("s_endpgm  ", "s_mov_b32 s5/*Invalid register*/, 0", "unknown"),
        ("000000001A0C", "000000001A10", "no instruction at byte 0xc"),
        (LINES[3], "", "ends at byte 0x18"),
    ],
)
def test_whatever_does_not_fit_is_refused(old: str, new: str, message: str) -> None:
    text = HEAD + "".join(LINES)
    assert old in text
    with pytest.raises(DecodeError, match=message):
        parse_disassembly(text.replace(old, new), SYMBOL, "gfx1100")
