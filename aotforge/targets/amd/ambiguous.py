"""Constants in assembly texts that have one encoding and two meanings, by their spelling.

A GPU executes the encoding, the emulator reads the spelling. LLVM's printer, which writes the texts of compilers, has one spelling for
each encoding.
"""

import re
from collections.abc import Iterator

_LINE = re.compile(r"^[ \t]*(v_\w*(?:16|mix|dot|bf8|fp8)\w*|scratch_\w+)[ \t]+([^;\n]*)", re.MULTILINE)
"""Instructions with sources of 16 bits or fewer, and accesses to private memory."""
_OTHERS = re.compile(r"v_(?:s?mfmac?|s?wmmac?|permlane|pk_mov)")
"""Their constants have 32 bits, or are zero."""
_REALS_AS_BITS = re.compile(r"v_(?:dot|cvt_\w*f32_(?:bf8|fp8))")
"""The emulator has the bits of a real of 32 bits there, or of 16, where a GPU has the other."""
_CONSTANT = re.compile(r"(-?(?:0x[0-9a-f]+|\d+))|-?\d+\.\d*(?:e[-+]?\d+)?")
_MODIFIERS = re.compile(r"neg|abs|[|()]")
_OP_SEL = re.compile(r"\bop_sel:\[([01,]+)\]")
_SMALL = range(-16, 65)
_REALS_16 = frozenset({0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118})
_REALS_32 = frozenset(
    {
        0x3F000000,
        0xBF000000,
        0x3F800000,
        0xBF800000,
        0x40000000,
        0xC0000000,
        0x40800000,
        0xC0800000,
        0x3E22F983,
    }
)
"""0.5, 1, 2, 4, their negatives and 1 / (2 pi): inline constants, as the integers from -16 to 64."""


def ambiguous_line(text: str, arch: str) -> str:
    """The first instruction of a text with such a constant, '' for none."""
    for found in _LINE.finditer(text):
        name, rest = found[1], found[2]
        if name.startswith("scratch_"):
            # on gfx10 null as the scalar address is encoded as none, and the vector address counts
            wrong = arch.startswith("gfx10") and bool(re.search(r"\bnull\b", rest))
        else:
            wrong = not _OTHERS.match(name) and any(_faults(name, rest))
        if wrong:
            return found[0].strip()
    return ""


def _faults(name: str, rest: str) -> Iterator[bool]:
    selected = found[1].split(",") if (found := _OP_SEL.search(rest)) else []
    for number, operand in enumerate(rest.split(",")[1:]):
        word = _MODIFIERS.sub("", operand.split()[0]) if operand.split() else ""
        if match := _CONSTANT.fullmatch(word):
            high = selected[number : number + 1] == ["1"]
            yield (high and word != "0") or (
                _spelling(match[1]) if match[1] else bool(_REALS_AS_BITS.match(name))
            )


def _spelling(text: str) -> bool:
    """Whether the printer spells this integer in another way."""
    value = int(text, 0)
    if "0x" not in text:
        return value not in _SMALL
    low = value & 0xFFFF
    short = value <= 0xFFFF or value >= 0xFFFF0000
    inline = low in _REALS_16 or low in _SMALL or low - 0x10000 in _SMALL
    return value in _REALS_32 or (short and inline)
