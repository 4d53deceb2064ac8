"""Changes of bytes for fuzzing: like the mutations of coverage-guided fuzzers, from a seeded generator."""

from __future__ import annotations

import random
import struct

_NUMBERS = (0, 1, 2, 3, 4, 5, 0x7F, 0x80, 0xFF)
_WORDS = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"-1",
    b"1e999",
    b'"',
    b"\\u0000",
    b"..",
    b"/",
    b"\n",
    b"\x1b[2J",
    b"\xff\xfe",
    b"[" * 3000,
)


def mutated(data: bytes, dice: random.Random, words: tuple[bytes, ...] = _WORDS) -> bytes:
    """One to eight changes: bytes, little-endian numbers at their limits, parts left out, doubled or
    exchanged, words put in."""
    new = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 8))):
        at = dice.randrange(len(new) + 1)
        match dice.randrange(8):
            case 0:
                new[at : at + 1] = bytes([dice.choice((*_NUMBERS, dice.randrange(256)))])
            case 1:
                new[at : at + 1] = bytes([(new[at] + dice.choice((1, -1))) % 256]) if at < len(new) else b""
            case 2:
                new[at : at + 2] = struct.pack("<H", dice.choice((0, 1, 2, 2**15, 2**16 - 1)))
            case 3:
                new[at : at + 4] = struct.pack("<I", dice.choice((0, 1, 2**26, 2**31, 2**32 - 1)))
            case 4:
                new[at : at + 8] = struct.pack("<q", dice.choice((0, 1, -1, 2**31, -(2**63), 2**63 - 1)))
            case 5:
                del new[at : at + dice.randrange(1, 40)]
            case 6:
                end = at + dice.randrange(1, 40)
                new[end:end] = new[at:end]
            case _:
                new[at:at] = dice.choice(words)
    return bytes(new)
