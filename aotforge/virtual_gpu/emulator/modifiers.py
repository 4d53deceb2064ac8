"""Modifiers of AMDGPU assembly, such as `offset:16`, `op_sel:[1,0]`, `clamp`, `row_mask:0xf`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import ModifierValue

_FLAGS = "clamp glc slc dlc sc0 sc1 nt offen idxen lds gds tfe row_mirror row_half_mirror"
_NUMBERS = (
    "offset offset0 offset1 mul div row_shl row_shr row_ror row_bcast row_newbcast row_share row_xmask wave_shl wave_rol "
    "wave_shr wave_ror row_mask bank_mask bound_ctrl fi cbsz abid blgp bitop3"
)
_LISTS = "op_sel op_sel_hi neg_lo neg_hi quad_perm"
_SELECTORS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": 2}


def _list(text: str) -> ModifierValue:
    return tuple(int(part, 0) for part in text.strip("[]").split(","))


_PARSERS: Mapping[str, Callable[[str], ModifierValue]] = {
    **dict.fromkeys(_FLAGS.split(), {"": 1}.__getitem__),
    **dict.fromkeys(_NUMBERS.split(), lambda text: int(text, 0)),
    **dict.fromkeys(_LISTS.split(), _list),
    **dict.fromkeys(("dst_sel", "src0_sel", "src1_sel"), _SELECTORS.__getitem__),
    "dst_unused": _UNUSED.__getitem__,
    **dict.fromkeys(("scope", "th"), str),
}
"""From the text behind the colon; ValueError or KeyError when it is not a value of the modifier."""
_PIECE = re.compile(r"(\w+)(?::(\[[^\]]*\]|\S+))?$")


def is_modifier(word: str) -> bool:
    """Whether a word begins a modifier."""
    return word.partition(":")[0] in _PARSERS


def modifiers(words: list[str]) -> Mapping[str, ModifierValue]:
    """Parse modifiers. Raises DecodeError for unknown ones and for values that they do not have."""
    found: dict[str, ModifierValue] = {}
    for word in words:
        match = _PIECE.match(word)
        name = match[1] if match else ""
        if match is None or name not in _PARSERS or name in found:
            raise DecodeError(f"unknown modifier {word!r}")
        try:
            found[name] = _PARSERS[name](match[2] or "")
        except (ValueError, KeyError):
            raise DecodeError(f"modifier {word!r} has an unknown value") from None
        if found[name] == "":
            raise DecodeError(f"modifier {word!r} has no value")
    return found


def number(values: Mapping[str, ModifierValue], name: str, default: int = 0) -> int:
    """A modifier's number."""
    value = values.get(name, default)
    if not isinstance(value, int):
        raise DecodeError(f"modifier {name} is not a number")
    return value


def bits(values: Mapping[str, ModifierValue], name: str, default: int) -> int:
    """A modifier's list of bits as a number, first bit lowest."""
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, tuple) or any(bit not in {0, 1} for bit in value):
        raise DecodeError(f"modifier {name} is not a list of bits")
    return sum(bit << place for place, bit in enumerate(value))
