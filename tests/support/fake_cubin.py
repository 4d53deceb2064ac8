"""Cubins without code, for the CUDA double and the reader: an ELF file with the `.nv.info` sections of one
kernel."""

from __future__ import annotations

import struct
from collections.abc import Sequence

SIZES = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}
_GLOBAL = 4 << 8 | 0x1F << 12


def _sized(attribute: int, value: bytes) -> bytes:
    return struct.pack("<BBH", 4, attribute, len(value)) + value


def _parameters(types: Sequence[str]) -> bytes:
    """EIATTR_KPARAM_INFO of each parameter, the last one first, as ptxas writes them."""
    entries, offset = [], 0
    for number, kind in enumerate(types):
        size = SIZES[kind]
        offset = -(-offset // size) * size
        word = size << 18 | (_GLOBAL if kind == "ptr" else 0x1F << 12)
        entries.append(_sized(0x17, struct.pack("<IHHI", 0, number, offset, word)))
        offset += size
    return b"".join(reversed(entries))


def fake_cubin(
    symbol: str,
    types: Sequence[str],
    *,
    capability: int = 90,
    threads: int = 128,
    registers: int = 32,
    frame: int = 0,
    static_shared: int = 0,
    names: Sequence[str] = (),
    old: bool = False,
) -> bytes:
    """`old`: as CUDA 12 marks the capability; else as CUDA 13."""
    info = _sized(0x2F, struct.pack("<II", 6, registers)) + _sized(0x11, struct.pack("<II", 6, frame))
    own = _parameters(types) + _sized(0x10, struct.pack("<III", threads, 1, 1))
    own += struct.pack("<BBH", 3, 0x1B, 255)  # a value of two bytes, which has no size
    strings = b"\0" + b"\0".join(name.encode() for name in (symbol, *names)) + b"\0"
    sections = [
        (".strtab", 3, strings, None),
        (".nv.info", 0x70000000, info, None),
        (f".nv.info.{symbol}", 0x70000000, own, None),
        (f".text.{symbol}", 1, b"\0" * 16, None),
        (f".nv.shared.{symbol}", 8, b"", static_shared),
    ]
    table = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    headers, body, at = [struct.pack("<IIQQQQIIQQ", *[0] * 10)], b"", 64
    for name, kind, data, size in [*sections, (".shstrtab", 3, table, None)]:
        length = len(data) if size is None else size
        place = table.index(name.encode() + b"\0")
        headers.append(struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, at, length, 0, 0, 1, 0))
        body += data
        at += len(data)
    flags = 0x500500 | capability if old else 0x6000004 | capability << 8
    magic = b"\x7fELF\x02\x01\x01" + bytes([0x33 if old else 0x41, 7 if old else 8]) + bytes(7)
    count = len(headers)
    head = magic + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, at, flags, 64, 56, 0, 64, count, count - 1)
    return head + body + b"".join(headers)
