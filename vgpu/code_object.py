"""Reader of AMDGPU code objects: sections, symbols and segments of an ELF file, and its metadata note.

Compile workers run this in pinned root filesystems without msgpack, so MessagePack is decoded here.
Format of the note `AMDGPU`, type 32: LLVM's "User Guide for AMDGPU Backend", code object V5 metadata.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NT_AMDGPU_METADATA = 32
_PT_NOTE = 4
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_SHORT = ((0, 0x7F, "number"), (0x80, 0x8F, "map"), (0x90, 0x9F, "array"), (0xA0, 0xBF, "text"))
"""First and last type code, which contains the number."""
_WIDE = (
    (0xCC, "number", (">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")),
    (0xD9, "text", (">B", ">H", ">I")),
    (0xDC, "array", (">H", ">I")),
    (0xDE, "map", (">H", ">I")),
)
"""First type code, and layouts of the number that follows it: itself, or a size."""


class CodeObjectError(ValueError):
    """Bytes that are not an AMDGPU code object, or whose metadata cannot be read."""


def kernel_metadata(hsaco: bytes) -> dict[str, Any]:
    """The `amdhsa.kernels` entry of a code object with exactly one kernel. Raises CodeObjectError."""
    kernels = metadata(hsaco).get("amdhsa.kernels")
    if not isinstance(kernels, list) or len(kernels) != 1 or not isinstance(kernels[0], dict):
        raise CodeObjectError("not exactly one kernel in the code object")
    return kernels[0]


def metadata(hsaco: bytes) -> dict[str, Any]:
    """The complete metadata map. Raises CodeObjectError."""
    try:
        for kind, start, _, length, _ in segments(hsaco):
            if kind == _PT_NOTE and (found := _note(hsaco[start : start + length])) is not None:
                value = Unpacker(found).value()
                if isinstance(value, dict):
                    return value
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error
    raise CodeObjectError("no AMDGPU metadata note")


def segments(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Kind, offset, address, bytes in the file and in memory of every program header of an ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise CodeObjectError("not a 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        header = struct.unpack_from("<IIQQQQQQ", data, start + index * size)
        yield header[0], header[2], header[3], header[5], header[6]


def _note(segment: bytes) -> bytes | None:
    position = 0
    while position + 12 <= len(segment):
        name_size, size, kind = struct.unpack_from("<III", segment, position)
        name = position + 12
        start = name + (name_size + 3) // 4 * 4
        if kind == _NT_AMDGPU_METADATA and segment[name : name + name_size] == b"AMDGPU\0":
            return segment[start : start + size]
        position = start + (size + 3) // 4 * 4
    return None


class Unpacker:
    """MessagePack as far as code objects use it: nil, booleans, integers, strings, arrays, maps."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> Any:
        """The next value. Raises CodeObjectError for other types, struct.error or IndexError past the end."""
        if depth > 16:
            raise CodeObjectError("metadata nested too deeply")
        code = self._bytes(1)[0]
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        kind, number = self._head(code)
        if kind == "number":
            return number
        if kind == "text":
            return self._bytes(number).decode()
        if kind == "array":
            return [self.value(depth + 1) for _ in range(number)]
        keys_and_values = ((self.value(depth + 1), self.value(depth + 1)) for _ in range(number))
        return {key if isinstance(key, str | int) else repr(key): value for key, value in keys_and_values}

    def _head(self, code: int) -> tuple[str, int]:
        for first, last, kind in _SHORT:
            if first <= code <= last:
                return kind, code - first
        if code >= 0xE0:
            return "number", code - 256
        for first, kind, layouts in _WIDE:
            if first <= code < first + len(layouts):
                layout = layouts[code - first]
                return kind, int(struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0])
        raise CodeObjectError(f"MessagePack type 0x{code:02x}")

    def _bytes(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise IndexError("past the end")
        self._at += size
        return self._data[self._at - size : self._at]


_SHT_SYMTAB, _SHT_RELA, _SHT_REL, _SHT_DYNSYM, _SHT_NOBITS = 2, 4, 9, 11, 8
_PT_LOAD = 1
_NULL_SECTION = 0
_LEAST_LIMIT = 1 << 24
"""Bytes of loaded segments that any file may have; others 16 times their size more."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section. `address` as loaded, `offset` in the file."""

    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """A defined symbol: its address as loaded (in a relocatable file: in its section) and size."""

    name: str
    value: int
    size: int


@dataclass(frozen=True, kw_only=True)
class ElfFile:
    """A parsed file. `memory` is the loaded image from address 0: every PT_LOAD segment in its place."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    memory: bytes

    def section(self, name: str) -> Section:
        """The section of a name. Raises CodeObjectError."""
        found = [section for section in self.sections if section.name == name]
        if len(found) != 1:
            raise CodeObjectError(f"{len(found)} sections called {name}")
        return found[0]

    def symbol(self, name: str) -> Symbol:
        """The symbol of a name. Raises CodeObjectError."""
        found = [symbol for symbol in self.symbols if symbol.name == name]
        if not found:
            raise CodeObjectError(f"no symbol {name}")
        return found[0]

    @property
    def undefined(self) -> tuple[str, ...]:
        """Names of symbols that other files must define, sorted. Raises CodeObjectError."""
        try:
            return tuple(sorted({symbol.name for symbol in _entries(self.sections, defined=False)}))
        except (struct.error, IndexError, ValueError) as error:
            raise CodeObjectError(f"truncated or damaged: {error}") from error

    @property
    def relocations(self) -> int:
        """How many relocation entries the file has."""
        return sum(
            section.size // (24 if section.kind == _SHT_RELA else 16)
            for section in self.sections
            if section.kind in {_SHT_RELA, _SHT_REL}
        )


def read_elf(data: bytes) -> ElfFile:
    """Parse an ELF file. Raises CodeObjectError."""
    try:
        memory, sections = _memory(data), _sections(data)
        symbols = {symbol.name: symbol for symbol in _entries(sections, defined=True)}
        return ElfFile(sections=sections, symbols=tuple(symbols.values()), memory=memory)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error


def _text_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _sections(data: bytes) -> tuple[Section, ...]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    table = data[headers[names][4] : headers[names][4] + headers[names][5]]
    return tuple(
        Section(
            name=_text_at(table, h[0]),
            kind=h[1],
            address=h[3],
            offset=h[4],
            size=h[5],
            link=h[6],
            data=b"" if h[1] == _SHT_NOBITS else data[h[4] : h[4] + h[5]],
        )
        for h in headers
    )


def _entries(sections: tuple[Section, ...], *, defined: bool) -> Iterator[Symbol]:
    for section in sections:
        if section.kind in {_SHT_SYMTAB, _SHT_DYNSYM}:
            names = sections[section.link].data
            for at in range(0, section.size, 24):
                name, _, _, where, value, size = struct.unpack_from("<IBBHQQ", section.data, at)
                if (where != _NULL_SECTION) == defined and name:
                    yield Symbol(name=_text_at(names, name), value=value, size=size)


def _memory(data: bytes) -> bytes:
    memory = bytearray()
    for kind, offset, address, in_file, in_memory in segments(data):
        if kind == _PT_LOAD:
            if address + in_memory > _LEAST_LIMIT + 16 * len(data):
                raise CodeObjectError("a segment is larger than any kernel")
            if in_file > in_memory or offset + in_file > len(data):
                raise CodeObjectError("a segment has more bytes in the file than in memory, or than the file")
            memory.extend(bytes(max(0, address + in_memory - len(memory))))
            memory[address : address + in_file] = data[offset : offset + in_file]
    return bytes(memory)
