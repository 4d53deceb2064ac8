"""Description that a CPU image has of itself: constant data under one symbol."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aotforge.formats.code_object import CodeObjectError
from aotforge.formats.elf import ElfFile, read_elf
from aotforge.rules import ValueType

DESCRIPTION = "aotforge_cpu_kernel"
"""The symbol. Its data: `_HEADER`, a byte per parameter, then the zero-terminated texts: kernel, level, messages of assertions."""
_HEADER = struct.Struct("<IIQII")
"""Version, bytes in all, bytes of memory for each thread, parameters, messages."""
_VERSION = 1
_KINDS: tuple[ValueType, ...] = ("ptr", "i32", "i64", "u64", "f32")
_NEEDED = 0x80
_LIMIT = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A run-time parameter. `needed`: a pointer that every call with programs uses, so that it cannot be null."""

    kind: ValueType
    needed: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageDescription:
    """`symbol` is the exported function's name, `level` that of x86-64, `scratch` the bytes of memory that each thread brings."""

    symbol: str
    level: str
    scratch: int
    parameters: tuple[Parameter, ...]
    messages: tuple[str, ...]

    def encode(self) -> bytes:
        """The data of the symbol `DESCRIPTION`."""
        kinds = bytes(_KINDS.index(p.kind) | (_NEEDED if p.needed else 0) for p in self.parameters)
        texts = b"".join(text.encode() + b"\0" for text in (self.symbol, self.level, *self.messages))
        size = _HEADER.size + len(kinds) + len(texts)
        header = _HEADER.pack(_VERSION, size, self.scratch, len(self.parameters), len(self.messages))
        return header + kinds + texts


def read_description(binary: bytes) -> ImageDescription:
    """Raises CodeObjectError for a file that is not an image of this back end."""
    elf = read_elf(binary)
    try:
        return _decoded(_data(elf))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CodeObjectError(f"{DESCRIPTION} is damaged: {error}") from error


def imported(binary: bytes) -> tuple[str, ...]:
    """Names of the functions that an image takes from the C library. Raises CodeObjectError."""
    return read_elf(binary).undefined


def _data(elf: ElfFile) -> bytes:
    at = elf.symbol(DESCRIPTION).value
    _, size, *_ = _HEADER.unpack_from(elf.memory, at)
    if size > min(_LIMIT, len(elf.memory) - at):
        raise ValueError(f"{size} bytes")
    return elf.memory[at : at + size]


def _decoded(data: bytes) -> ImageDescription:
    version, _, scratch, count, texts_after = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CodeObjectError(f"{DESCRIPTION} has version {version}, not {_VERSION}")
    kinds = data[_HEADER.size : _HEADER.size + count]
    texts = data[_HEADER.size + count :].split(b"\0")
    if len(kinds) != count or len(texts) != texts_after + 3 or texts[-1]:
        raise ValueError("its parts do not have its size")
    symbol, level, *messages = (text.decode() for text in texts[:-1])
    parameters = tuple(Parameter(kind=_KINDS[k & ~_NEEDED], needed=bool(k & _NEEDED)) for k in kinds)
    return ImageDescription(
        symbol=symbol, level=level, scratch=scratch, parameters=parameters, messages=tuple(messages)
    )
