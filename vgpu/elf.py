"""The parts of an image's ELF file that execution needs: sections, symbols, loadable segments.

Raises CodeObjectError for anything that is not a readable 64-bit little-endian ELF file.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from vgpu.code_object import CodeObjectError, segments

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
