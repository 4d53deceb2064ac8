"""Modifiers of AMDGPU assembly, such as `offset:16`, `op_sel:[1,0]`, `clamp`, `row_mask:0xf`.

Data-parallel primitives (DPP) select the lane that each lane reads. Rows have 16 lanes, banks 4. Source: the
guides' chapters on DPP; gfx9 and older know row_bcast and wave shifts, later archs row_share and row_xmask.
"""

import re
from collections.abc import Callable, Mapping

from vgpu.emulator.decoded import ModifierValue
from vgpu.emulator.operands import integer
from vgpu.errors import DecodeError

_FLAGS = "clamp glc slc dlc sc0 sc1 nt offen idxen lds gds tfe row_mirror row_half_mirror"
_NUMBERS = (
    "offset0 offset1 row_shl row_shr row_ror row_bcast row_newbcast row_share row_xmask wave_shl wave_rol "
    "wave_shr wave_ror row_mask bank_mask bound_ctrl fi cbsz abid blgp bitop3"
)
_LISTS = "op_sel op_sel_hi neg_lo neg_hi quad_perm"
_SELECTORS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": 2}


def _list(text: str) -> ModifierValue:
    return tuple(integer(part) for part in text.strip("[]").split(","))


def _byte(text: str) -> ModifierValue:
    value = integer(text)
    if not 0 <= value < 256:
        raise DecodeError(f"{text} is not a number from 0 to 255")
    return value


_PARSERS: Mapping[str, Callable[[str], ModifierValue]] = {
    **dict.fromkeys(_FLAGS.split(), {"": 1}.__getitem__),
    **dict.fromkeys(_NUMBERS.split(), _byte),
    "offset": integer,
    **dict.fromkeys(_LISTS.split(), _list),
    **dict.fromkeys(("dst_sel", "src0_sel", "src1_sel"), _SELECTORS.__getitem__),
    "dst_unused": _UNUSED.__getitem__,
    **dict.fromkeys(("scope", "th"), str),
}
"""From the text behind the colon. DecodeError, ValueError or KeyError for another value."""
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
        except (DecodeError, ValueError, KeyError):
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


# ---- data-parallel primitives ----

_NONE = -1


def _shifted(lane: int, n: int) -> int:
    """`n` lanes further in the same row."""
    return lane + n if 0 <= lane % 16 + n < 16 else _NONE


_PATTERNS: Mapping[str, Callable[[int, int, int], int]] = {
    "row_shl": lambda lane, n, lanes: _shifted(lane, n),
    "row_shr": lambda lane, n, lanes: _shifted(lane, -n),
    "row_ror": lambda lane, n, lanes: lane // 16 * 16 + (lane - n) % 16,
    "row_mirror": lambda lane, n, lanes: lane ^ 15,
    "row_half_mirror": lambda lane, n, lanes: lane ^ 7,
    "row_newbcast": lambda lane, n, lanes: lane // 16 * 16 + n,
    "row_share": lambda lane, n, lanes: lane // 16 * 16 + n,
    "row_xmask": lambda lane, n, lanes: lane // 16 * 16 + (lane % 16 ^ n),
    # lane 15 of a row to the next row; lane 31 to rows 2 and 3
    "row_bcast": lambda lane, n, lanes: lane // 16 * 16 - 1 if n == 15 else 31 if lane >= 32 else _NONE,
    "wave_shr": lambda lane, n, lanes: lane - 1,
    "wave_shl": lambda lane, n, lanes: lane + 1,
    "wave_ror": lambda lane, n, lanes: (lane - 1) % lanes,
    "wave_rol": lambda lane, n, lanes: (lane + 1) % lanes,
}
"""(lane, modifier's number, lanes of the wave) to the lane read; one outside of the wave: none."""


def source_lanes(modifiers: Mapping[str, ModifierValue], lanes: int) -> list[int]:
    """The lane that each lane reads, -1 for none. Raises DecodeError unless there is one known pattern."""
    named = [name for name in (*_PATTERNS, "quad_perm") if name in modifiers]
    if len(named) != 1:
        raise DecodeError("not exactly one DPP pattern")
    if named == ["quad_perm"]:
        quad = modifiers["quad_perm"]
        if not isinstance(quad, tuple) or len(quad) != 4 or any(not 0 <= n < 4 for n in quad):
            raise DecodeError("quad_perm needs four numbers from 0 to 3")
        return [lane // 4 * 4 + int(quad[lane % 4]) for lane in range(lanes)]
    n = number(modifiers, named[0])
    if named == ["row_bcast"] and n not in {15, 31}:
        raise DecodeError(f"row_bcast:{n} is unknown")
    found = [_PATTERNS[named[0]](lane, n, lanes) for lane in range(lanes)]
    return [lane if 0 <= lane < lanes else _NONE for lane in found]
