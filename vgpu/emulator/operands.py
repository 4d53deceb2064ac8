"""Operands and modifiers of AMDGPU assembly, and the bits of constants.

Source of constants: the guides' chapters on inline constants and literals. Integers from -16 to 64 and a few
reals are inline and take the operand's type; all others are 32-bit literals. The assembler has already
checked that the instruction can hold the constant. Data-parallel primitives (DPP) select the lane that each
lane reads. Rows have 16 lanes, banks 4; gfx9 and older know row_bcast and wave shifts, later archs row_share
and row_xmask.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from vgpu.emulator.decoded import ModifierValue, Operand, Space
from vgpu.errors import DecodeError

_PAIRS = {"vcc": 106, "exec": 126}
"""Without flat_scratch and xnack_mask: on gfx9 they are SGPRs with other numbers."""
_SPECIAL = {
    "m0": (125, 1),
    "null": (124, 1),
    **{name: (index, 2) for name, index in _PAIRS.items()},
    **{f"{name}_lo": (index, 1) for name, index in _PAIRS.items()},
    **{f"{name}_hi": (index + 1, 1) for name, index in _PAIRS.items()},
}
_STATUS = {"scc": 0, "src_scc": 0, "vccz": 1, "src_vccz": 1, "execz": 2, "src_execz": 2}
_DECIMAL = r"(?:0|[1-9][0-9]*)"
_REGISTER = re.compile(rf"(v|s|a|ttmp)(?:({_DECIMAL})|\[({_DECIMAL})(?::({_DECIMAL}))?\])(?:\.([lh]))?$")
_INTEGER = re.compile(rf"(?:0x[0-9a-f]+|-?{_DECIMAL})$")
_REAL = re.compile(r"-?\d+\.\d*(e[-+]?\d+)?$")
_RELATIVE = re.compile(r"[\w.$]+@rel32@(lo|hi)(\+\d+)?$")
_HARDWARE = re.compile(rf"hwreg\((\w+)(?:,\s*({_DECIMAL}),\s*({_DECIMAL}))?\)$")
_HARDWARE_REGISTERS = {"HW_REG_MODE": 1, "HW_REG_WAVE_MODE": 1}
_WRAPPED = re.compile(r"(neg|abs|sext)\((.*)\)$|-([a-z|].*)$|\|(.+)\|$")
_INLINE_REALS = {0.0, 0.5, 1.0, 2.0, 4.0, 0.15915494}
_BASE: dict[str, tuple[Space, int, int]] = {
    "v": ("vector", 0, 256),
    "a": ("vector", 256, 256),
    "s": ("scalar", 0, 106),
    "ttmp": ("scalar", 108, 16),
}


def integer(text: str) -> int:
    """A number as LLVM prints it. Raises DecodeError for others: an assembler may read 010 as octal."""
    if not _INTEGER.match(text):
        raise DecodeError(f"{text!r} is not a number as the compiler writes them")
    return int(text, 0)


@lru_cache(maxsize=4096)
def operand(text: str) -> Operand:
    """Parse one operand. Raises DecodeError."""
    inner, flags = _unwrapped(text)
    found = _register(inner) or _named(inner) or _number(inner)
    if found is None:
        cause = "the decoder does not know this register or number"
        raise DecodeError(f"unknown operand {text!r}", cause=cause)
    return replace(found, text=text, neg="neg" in flags, abs="abs" in flags, sext="sext" in flags)


def _unwrapped(text: str) -> tuple[str, list[str]]:
    """The operand without its modifiers: -x, |x|, neg(x), abs(x), sext(x). Only -|x| nests."""
    flags: list[str] = []
    while wrapped := _WRAPPED.match(text):
        name, inner, negated, magnitude = wrapped.groups()
        flags.append(name or ("neg" if negated else "abs"))
        text = inner or negated or magnitude or ""
    if flags not in ([], ["neg"], ["abs"], ["sext"], ["neg", "abs"]):
        raise DecodeError(f"unknown combination of operand modifiers in {text!r}")
    return text, flags


def _register(text: str) -> Operand | None:
    match = _REGISTER.match(text)
    if match is None:
        return None
    file, one, low, high, half = match.groups()
    first = int(one or low)
    last = int(high or first)
    space, base, size = _BASE[file]
    if last < first or last >= size:
        raise DecodeError(f"{text} is not a valid register")
    part = None if half is None else int(half == "h")
    return Operand(text=text, space=space, index=base + first, words=last - first + 1, half=part)


def _named(text: str) -> Operand | None:
    if text in _SPECIAL:
        index, words = _SPECIAL[text]
        return Operand(text=text, space="scalar", index=index, words=words)
    if text in _STATUS:
        return Operand(text=text, space="status", index=_STATUS[text])
    if text == "off":
        return Operand(text=text, space="none", words=0)
    return None


def _number(text: str) -> Operand | None:
    if _INTEGER.match(text):
        return Operand(text=text, space="constant", integer=integer(text), hexadecimal="0x" in text)
    if _REAL.match(text):
        return Operand(text=text, space="constant", real=float(text))
    if _RELATIVE.match(text):
        return Operand(text=text, space="constant", hexadecimal=True, symbol=True)
    if match := _HARDWARE.match(text):
        return Operand(text=text, space="constant", integer=_hardware_register(text, *match.groups()))
    return None


def _hardware_register(text: str, name: str, offset: str | None, size: str | None) -> int:
    """The encoding of `hwreg(NAME, offset, size)`: number, offset and size - 1 of the field."""
    if name not in _HARDWARE_REGISTERS:
        raise DecodeError(f"{text}: the hardware register {name} is not supported by the virtual GPU")
    return _HARDWARE_REGISTERS[name] | int(offset or "0") << 6 | int(size or "32") - 1 << 11


def constant_bits(operand: Operand, kind: str) -> int:
    """The bits that the instruction sees: 64 of 64-bit types, else the low 32. Raises DecodeError."""
    if operand.real is not None:
        return _real_bits(operand, operand.real, kind)
    value = operand.integer
    if not -(1 << 31) <= value < 1 << 32:
        if kind in {"u64", "i64"} and -(1 << 63) <= value < 1 << 64:
            return value & 0xFFFFFFFFFFFFFFFF
        raise DecodeError(f"the constant {operand.text} does not fit")
    if kind in {"u64", "i64", "f64"} and operand.hexadecimal == (-16 <= value <= 64) and not operand.symbol:
        # inline constants are decimal, literals are not: an assembler extends others by rules of its own
        raise DecodeError(f"the constant {operand.text} of 64 bits is not as the compiler writes them")
    if kind in {"u64", "i64"}:
        # of unsigned operands zeros: Philox kernels for gfx1201 multiply by such a literal of s_mov_b64
        if kind == "i64" and operand.hexadecimal and value >> 31:
            raise DecodeError(f"the literal {operand.text} could be extended with zeros or signs")
        return value & 0xFFFFFFFFFFFFFFFF
    if kind == "f64" and operand.hexadecimal:
        return (value & 0xFFFFFFFF) << 32
    return value & (0xFFFFFFFFFFFFFFFF if kind == "f64" else 0xFFFFFFFF)


def _real_bits(operand: Operand, real: float, kind: str) -> int:
    if abs(real) not in _INLINE_REALS:
        raise DecodeError(f"the constant {operand.text} is not an inline constant")
    if kind in {"f64", "u64", "i64"}:
        if abs(real) == 0.15915494:  # 1 / (2 pi) has more digits in double
            raise DecodeError(f"the constant {operand.text} as a double is not supported")
        return int(struct.unpack("<Q", struct.pack("<d", real))[0])
    if kind in {"i16", "u16"}:
        raise DecodeError(
            f"the constant {operand.text} as an integer: packed instructions have 32 bits of it, others 16"
        )
    if kind == "f16":
        return int(struct.unpack("<H", struct.pack("<e", real))[0])
    return int(struct.unpack("<I", struct.pack("<f", real))[0])


_FLAGS = "clamp glc slc dlc sc0 sc1 nt offen idxen lds gds tfe row_mirror row_half_mirror"
_NUMBERS = (
    "offset0 offset1 row_shl row_shr row_ror row_bcast row_newbcast row_share row_xmask wave_shl wave_rol "
    "wave_shr wave_ror row_mask bank_mask bound_ctrl fi cbsz abid blgp bitop3"
)
_LISTS = "op_sel op_sel_hi neg_lo neg_hi quad_perm"
_SCALES = {"mul": {"2": 2, "4": 4}, "div": {"2": 2}}
_SELECTORS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": 2}


def _list(text: str) -> ModifierValue:
    return tuple(integer(part) for part in text.strip("[]").split(","))


def _byte(text: str) -> ModifierValue:
    value = integer(text)
    if not 0 <= value < 256:
        raise DecodeError(f"{text} is not a number from 0 to 255")
    return value


def _offset(text: str) -> ModifierValue:
    """A number, or the pattern of ds_swizzle_b32 as its encoding."""
    if not text.startswith("swizzle("):
        return integer(text)
    mode, *rest = (part.strip().strip('"') for part in text[8:-1].split(","))
    if mode == "BITMASK_PERM":
        kinds = dict(zip("01pi", ((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 0, 1)), strict=True))
        masks = [kinds[letter] for letter in rest[0]]  # of AND, OR, XOR, highest bit first
        return sum(mask[k] << (5 * k + 4 - bit) for bit, mask in enumerate(masks) for k in range(3))
    numbers = [integer(part) for part in rest]
    encodings: Mapping[str, Callable[..., int]] = {
        "QUAD_PERM": lambda a, b, c, d: 0x8000 | a | b << 2 | c << 4 | d << 6,
        "BROADCAST": lambda size, lane: (32 - size) | lane << 5,
        "SWAP": lambda size: 31 | size << 10,
        "REVERSE": lambda size: 31 | size - 1 << 10,
        "FFT": lambda mask: 0xE000 | mask,
        "ROTATE": lambda direction, lanes: 0xC000 | direction << 10 | lanes << 5,
    }
    return encodings[mode](*numbers)


_PARSERS: Mapping[str, Callable[[str], ModifierValue]] = {
    **dict.fromkeys(_FLAGS.split(), {"": 1}.__getitem__),
    **dict.fromkeys(_NUMBERS.split(), _byte),
    "offset": _offset,
    **dict.fromkeys(_LISTS.split(), _list),
    **dict.fromkeys(("dst_sel", "src0_sel", "src1_sel"), _SELECTORS.__getitem__),
    "dst_unused": _UNUSED.__getitem__,
    **{name: values.__getitem__ for name, values in _SCALES.items()},
    **dict.fromkeys(("scope", "th"), str),
}
"""From the text behind the colon. DecodeError, ValueError or KeyError for another value."""
_PIECE = re.compile(r"(\w+)(?::(\[[^\]]*\]|\w+\([^()]*\)|\S+))?$")


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
        except (DecodeError, ValueError, KeyError, TypeError):
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


def swizzled_lanes(offset: int, lanes: int) -> list[int]:
    """The lane that each lane of ds_swizzle_b32 reads, of its own 32 (guides: DS_SWIZZLE_B32)."""
    mask, rotation = offset & 31, offset >> 5 & 31

    def of_32(lane: int) -> int:
        if offset >= 0xE000:
            backward = int(f"{lane:05b}"[::-1], 2)
            return lane if mask == 31 else backward >> mask.bit_count() | lane & mask
        if offset >= 0xC000:
            return lane & mask | lane + (-rotation if offset >> 10 & 1 else rotation) & 31 & ~mask
        if offset >> 15:
            return lane & ~3 | offset >> 2 * (lane & 3) & 3
        return (lane & mask | rotation) ^ offset >> 10 & 31

    return [lane & 32 | of_32(lane & 31) for lane in range(lanes)]
