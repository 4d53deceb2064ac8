"""The value of a constant operand: inline numbers and literals, by the type that the instruction reads.

Source: the guides' chapters on inline constants and literals. Integers from -16 to 64 and a few reals are inline and take the operand's type;
everything else is a 32-bit literal. The assembler has already made sure that the instruction can hold the constant.
"""

from __future__ import annotations

import struct

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import Operand

_INLINE_REALS = {0.0, 0.5, 1.0, 2.0, 4.0, 0.15915494}


def constant_bits(operand: Operand, kind: str) -> int:
    """The operand's bits as the instruction sees them: 64-bit types whole, others in the low 32 bits. Raises DecodeError."""
    if operand.real is not None:
        return _real_bits(operand, operand.real, kind)
    value = operand.integer
    if not -(1 << 31) <= value < 1 << 32:
        if kind in {"u64", "i64"} and -(1 << 63) <= value < 1 << 64:
            return value & 0xFFFFFFFFFFFFFFFF
        raise DecodeError(f"the constant {operand.text} does not fit")
    if kind in {"u64", "i64"}:
        if operand.hexadecimal and value >> 31:
            raise DecodeError(f"the literal {operand.text} could be extended with zeros or signs")
        return value & 0xFFFFFFFFFFFFFFFF
    if kind == "f64" and operand.hexadecimal:
        return (value & 0xFFFFFFFF) << 32
    if kind == "f64" and not -16 <= value <= 64:
        raise DecodeError(f"the constant {operand.text} is no inline number")
    return value & (0xFFFFFFFFFFFFFFFF if kind == "f64" else 0xFFFFFFFF)


def _real_bits(operand: Operand, real: float, kind: str) -> int:
    if abs(real) not in _INLINE_REALS:
        raise DecodeError(f"the constant {operand.text} is no inline number")
    if kind == "f64":
        if abs(real) == 0.15915494:  # 1 / (2 pi) has more digits in double
            raise DecodeError(f"the constant {operand.text} as a double is not supported")
        return int(struct.unpack("<Q", struct.pack("<d", real))[0])
    if kind in {"f16", "i16", "u16"}:
        return int(struct.unpack("<H", struct.pack("<e", real))[0])
    if kind in {"u64", "i64"}:
        raise DecodeError(f"the constant {operand.text} for a 64-bit integer is not supported")
    return int(struct.unpack("<I", struct.pack("<f", real))[0])
