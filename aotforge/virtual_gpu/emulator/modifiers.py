"""What follows an instruction's operands: `offset:16`, `op_sel:[1,0]`, `clamp`, `quad_perm:[1,0,3,2]`, `row_mask:0xf`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import ModifierValue

_FLAGS = frozenset(
    {
        "clamp",
        "glc",
        "slc",
        "dlc",
        "sc0",
        "sc1",
        "nt",
        "offen",
        "idxen",
        "lds",
        "gds",
        "tfe",
        "row_mirror",
        "row_half_mirror",
    }
)
_NUMBERS = frozenset(
    {
        "offset", "offset0", "offset1", "mul", "div", "row_shl", "row_shr", "row_ror", "row_bcast", "row_newbcast", "row_share",
        "row_xmask", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mask", "bank_mask", "bound_ctrl", "fi", "cbsz", "abid",
        "blgp", "bitop3",
    }
)  # fmt: skip
_LISTS = frozenset({"op_sel", "op_sel_hi", "neg_lo", "neg_hi", "quad_perm"})
_WORDS = frozenset({"dst_sel", "dst_unused", "src0_sel", "src1_sel", "scope", "th"})
_SELECTORS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": 2}
_KNOWN = _FLAGS | _NUMBERS | _LISTS | _WORDS
_PIECE = re.compile(r"(\w+)(?::(\[[^\]]*\]|\S+))?$")


def is_modifier(word: str) -> bool:
    """Whether a word begins a modifier."""
    return word.partition(":")[0] in _KNOWN


def modifiers(words: list[str]) -> Mapping[str, ModifierValue]:
    """Parse modifiers. Raises DecodeError for unknown ones and for values that make no sense."""
    found: dict[str, ModifierValue] = {}
    for word in words:
        match = _PIECE.match(word)
        name = match[1] if match else ""
        if match is None or name not in _KNOWN or name in found:
            raise DecodeError(f"unknown modifier {word!r}")
        found[name] = _value(name, match[2], word)
    return found


def _value(name: str, text: str | None, word: str) -> ModifierValue:
    try:
        if name in _FLAGS and text is None:
            return 1
        if name in _NUMBERS and text is not None:
            return int(text, 0)
        if name in _LISTS and text is not None:
            return tuple(int(part, 0) for part in text.strip("[]").split(","))
        if name in {"dst_sel", "src0_sel", "src1_sel"}:
            return _SELECTORS[text or ""]
        if name == "dst_unused":
            return _UNUSED[text or ""]
        if name in _WORDS and text is not None:
            return text
    except (ValueError, KeyError):
        pass
    raise DecodeError(f"modifier {word!r} has no value that the decoder knows")


def number(values: Mapping[str, ModifierValue], name: str, default: int = 0) -> int:
    """A modifier's number."""
    value = values.get(name, default)
    if not isinstance(value, int):
        raise DecodeError(f"modifier {name} is no number")
    return value


def bits(values: Mapping[str, ModifierValue], name: str, default: int) -> int:
    """A modifier's list of bits as a number, first bit lowest."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, tuple) or any(bit not in {0, 1} for bit in value):
        raise DecodeError(f"modifier {name} is no list of bits")
    return sum(bit << place for place, bit in enumerate(value))
