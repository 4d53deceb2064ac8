"""Description that a CPU image has of itself: constant data under one symbol."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

ValueType = Literal["ptr", "i32", "i64", "u64", "f32"]

DESCRIPTION = "aotforge_cpu_kernel"
"""The symbol. Its data: `HEADER`, a byte per parameter, zero-terminated kernel, level and messages."""
HEADER = struct.Struct("<IIQII")
"""Version, bytes in all, bytes of memory for each thread, parameters, messages."""
VERSION = 1
KINDS: tuple[ValueType, ...] = ("ptr", "i32", "i64", "u64", "f32")
NEEDED = 0x80


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A run-time parameter. `needed`: a pointer that cannot be null, as every program uses it."""

    kind: ValueType
    needed: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageDescription:
    """`symbol`: the exported function; `level`: of x86-64; `scratch`: bytes that each thread brings."""

    symbol: str
    level: str
    scratch: int
    parameters: tuple[Parameter, ...]
    messages: tuple[str, ...]

    def encode(self) -> bytes:
        """The data of the symbol `DESCRIPTION`."""
        kinds = bytes(KINDS.index(p.kind) | (NEEDED if p.needed else 0) for p in self.parameters)
        texts = b"".join(text.encode() + b"\0" for text in (self.symbol, self.level, *self.messages))
        size = HEADER.size + len(kinds) + len(texts)
        header = HEADER.pack(VERSION, size, self.scratch, len(self.parameters), len(self.messages))
        return header + kinds + texts
