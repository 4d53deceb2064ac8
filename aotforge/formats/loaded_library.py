"""Differences between a shared library as the loader reads it, by segments, and as tools do.

Sources: the gABI (chapters 4 and 5), the x86-64 psABI, and what glibc does: of equal segments and tags the last one counts, lists of versions
end where they state it, and symbols are found by DT_GNU_HASH alone. Tables must be where both look, and hold the same for both.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.formats.shared_library import LibraryFileError, open_elf

_PLACES = {
    "DT_SYMTAB": ".dynsym",
    "DT_STRTAB": ".dynstr",
    "DT_VERSYM": ".gnu.version",
    "DT_VERNEED": ".gnu.version_r",
    "DT_VERDEF": ".gnu.version_d",
    "DT_HASH": ".hash",
    "DT_GNU_HASH": ".gnu.hash",
}
"""Dynamic tags whose value is a section's address."""
_TYPES = {
    ".dynamic": "SHT_DYNAMIC",
    ".dynsym": "SHT_DYNSYM",
    ".dynstr": "SHT_STRTAB",
    ".gnu.version": "SHT_GNU_versym",
    ".gnu.version_r": "SHT_GNU_verneed",
}
"""Types of the sections that readers look for by name."""
_DYNSTR_USERS = (".dynamic", ".dynsym", ".gnu.version_r", ".gnu.version_d")
_REPEATED = {"DT_NEEDED", "DT_NULL"}
_NAMES = {"DT_NEEDED", "DT_SONAME"}
_BINDINGS, _KINDS, _OF_THREADS, _ABSOLUTE = {1, 2, 10}, {0, 1, 2, 5, 6, 10}, 6, 0xFFF1
"""Of symbols that are found: global, weak, unique; of no type, objects, functions, common, of threads, indirect functions. Those at 0 are not,
and those of visibility hidden or internal."""
_HIDDEN = {1, 2}
_COPY, _DESCRIPTOR, _LONG = 5, 36, 16
"""Relocations that write as many bytes as their symbol has, and 16."""
_ALLOCATED, _PAGE, _WORD, _SYMBOL, _ENTRY = 2, 4096, 4, 24, 16
_NAMES_LIMIT = 8 * 1024 * 1024
_MOST_SEGMENTS = 64
"""GCC and clang make about ten."""


def loader_differences(path: Path) -> list[str]:
    """What the loader reads otherwise; empty for libraries as compilers make them. Raises OSError, LibraryFileError."""
    with open_elf(path) as elf:
        if elf["e_phnum"] > _MOST_SEGMENTS:
            return [f"it has {elf['e_phnum']} segments"]
        segments, sections = list(elf.iter_segments()), list(elf.iter_sections())
        loads = [one for one in segments if one["p_type"] == "PT_LOAD"]
        named = {one.name: one for one in sections}
        found = [*_segments(loads), *_sections(sections, loads)]
        dynamic = [_place(one) for one in sections if one["sh_type"] == "SHT_DYNAMIC"]
        segment = [_segment_place(one) for one in segments if one["p_type"] == "PT_DYNAMIC"]
        if dynamic != segment or len(dynamic) != 1 or ".dynamic" not in named:
            return [*found, "its dynamic segment is not its dynamic section"]
        elf.stream.seek(named[".dynamic"]["sh_offset"])  # pyelftools' `data` would decompress it
        tags = _Tags(elf.stream.read(named[".dynamic"]["sh_size"]))
        found += [*tags.faults(), *_tables(tags.values, sections, named)]
        # what follows reads the tables at the places that both have
        return found or list(
            _Loaded(elf.stream, loads, tags.values, named).differences(tags.entries, segments)
        )


def _segments(loads: Sequence[Any]) -> Iterator[str]:
    for one in loads:
        if one["p_filesz"] > one["p_memsz"]:
            yield f"the segment at {one['p_vaddr']:#x} has more bytes in the file than in memory"
        if (one["p_vaddr"] - one["p_offset"]) % _PAGE:
            yield f"the segment at {one['p_vaddr']:#x} is not at this place of a page in the file"
    for before, after in itertools.pairwise(loads):
        end = before["p_vaddr"] + before["p_memsz"]
        shared = after["p_vaddr"] // _PAGE < (end + _PAGE - 1) // _PAGE
        same = before["p_vaddr"] - before["p_offset"] == after["p_vaddr"] - after["p_offset"]
        if after["p_vaddr"] < end or (shared and not same):
            yield f"the segments at {before['p_vaddr']:#x} and {after['p_vaddr']:#x} overlap"


def _sections(sections: Sequence[Any], loads: Sequence[Any]) -> Iterator[str]:
    names = [one.name for one in sections]
    if len({*names}) != len(names):
        yield "two sections have one name"
    for one in sections:
        if (wanted := _TYPES.get(one.name)) and one["sh_type"] != wanted:
            yield f"{one.name} is of type {one['sh_type']}"
        if one.name == ".dynsym" and one["sh_entsize"] != _SYMBOL:
            yield f"its symbols have {one['sh_entsize']} bytes"
        used = one["sh_flags"] & _ALLOCATED and one["sh_type"] != "SHT_NOBITS"
        if (used or one.name in {*_TYPES, *_PLACES.values()}) and not any(
            _loads(load, one) for load in loads
        ):
            yield f"{one.name} is loaded from other bytes"


def _tables(
    tags: Mapping[str, list[int]], sections: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[str]:
    for tag, name in _PLACES.items():
        section = named.get(name)
        if tags.get(tag, []) != ([section["sh_addr"]] if section else []):
            yield f"{tag} is not the address of {name}"
    texts = named.get(".dynstr")
    if tags.get("DT_STRSZ", []) != ([texts["sh_size"]] if texts else []):
        yield "DT_STRSZ is not the size of .dynstr"
    for name in _DYNSTR_USERS:
        if name in named and (
            named[name]["sh_link"] >= len(sections) or sections[named[name]["sh_link"]] is not texts
        ):
            yield f"{name} has its names elsewhere"
    for name in (".dynsym", ".dynstr", ".gnu.hash"):
        if name not in named:
            yield f"it has no {name}"


class _Tags:
    """The dynamic section's entries to the first DT_NULL, and their values by tag."""

    def __init__(self, data: bytes) -> None:
        entries = list(struct.iter_unpack("<QQ", data[: len(data) // _ENTRY * _ENTRY]))
        self.ends = (numbers := [tag for tag, _ in entries]).count(0) > 0
        self.entries = entries[: numbers.index(0)] if self.ends else entries
        self.values: dict[str, list[int]] = {}
        for tag, value in self.entries:
            self.values.setdefault(_TAGS.get(tag, f"{tag:#x}"), []).append(value)

    def faults(self) -> Iterator[str]:
        if not self.ends:
            yield "its dynamic section has no end"
        for tag, values in self.values.items():
            if len(values) > 1 and tag not in _REPEATED:
                yield f"{tag} is there twice"


_TAGS = {
    1: "DT_NEEDED", 2: "DT_PLTRELSZ", 4: "DT_HASH", 5: "DT_STRTAB", 6: "DT_SYMTAB", 7: "DT_RELA", 8: "DT_RELASZ", 9: "DT_RELAENT",
    35: "DT_RELRSZ", 36: "DT_RELR",
    10: "DT_STRSZ", 11: "DT_SYMENT", 14: "DT_SONAME", 20: "DT_PLTREL", 23: "DT_JMPREL", 30: "DT_FLAGS", 0x6FFFFEF5: "DT_GNU_HASH",
    0x6FFFFFF0: "DT_VERSYM", 0x6FFFFFFB: "DT_FLAGS_1", 0x6FFFFFFC: "DT_VERDEF", 0x6FFFFFFE: "DT_VERNEED", 0x6FFFFFFF: "DT_VERNEEDNUM",
}  # fmt: skip


class _Loaded:
    """Tables as the loader follows them, in the memory that the segments make of the file."""

    def __init__(
        self, file: Any, loads: Sequence[Any], tags: Mapping[str, list[int]], named: Mapping[str, Any]
    ) -> None:
        self._file, self._loads, self._named = file, loads, named
        self._tags = {tag: values[0] for tag, values in tags.items()}
        self._texts = self._read(self._tags["DT_STRTAB"], self._tags["DT_STRSZ"])
        self._count = named[".dynsym"]["sh_size"] // _SYMBOL
        self._left = _NAMES_LIMIT
        tables = [named[name] for name in {*_TYPES, *_PLACES.values()} if name in named]
        self._tables = [(one["sh_addr"], one["sh_addr"] + one["sh_size"]) for one in tables]

    def differences(self, entries: Sequence[tuple[int, int]], segments: Sequence[Any]) -> Iterator[str]:
        """Raises LibraryFileError."""
        if not self._texts.endswith(b"\0"):
            yield "the last name of .dynstr has no end"
            return
        places = [value for tag, value in entries if _TAGS.get(tag) in _NAMES]
        places += [name for name, *_ in self._symbols()]
        for parts in (self._version_places(), places):
            if any(place >= len(self._texts) for place in parts):
                yield "a name is behind .dynstr"
                return
        yield from self._versions()
        yield from self._relocations()
        yield from self._lookups()
        ends = [
            (one["p_vaddr"], one["p_vaddr"] + one["p_memsz"])
            for one in segments
            if one["p_type"] == "PT_GNU_RELRO"
        ]
        address, size = self._named[".dynamic"]["sh_addr"], self._named[".dynamic"]["sh_size"]
        if ends and not ends[-1][0] <= address <= address + size <= ends[-1][1]:
            yield "relocations of the dynamic section stay writable"

    def _read(self, address: int, size: int) -> bytes:
        for load in self._loads:
            offset = address - load["p_vaddr"]
            if offset >= 0 and offset + size <= load["p_filesz"]:
                self._file.seek(load["p_offset"] + offset)
                data: bytes = self._file.read(size)
                if len(data) == size:
                    return data
        raise LibraryFileError(f"{size} bytes at {address:#x} are not in its file")

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self._read(address, _WORD * count))

    def _symbols(self) -> list[tuple[int, ...]]:
        """Place of the name, info, other, section, address, size."""
        data = self._read(self._tags["DT_SYMTAB"], _SYMBOL * self._count)
        return list(struct.iter_unpack("<IBBHQQ", data))

    def _text(self, place: int) -> bytes:
        """Names of N symbols can be parts of one long text."""
        end = self._texts.index(b"\0", place)
        self._left -= end - place
        if self._left < 0:
            raise LibraryFileError("its names do not end")
        return self._texts[place:end]

    def _version_entries(self) -> Iterator[tuple[bool, int, int]]:
        """Of each needed library and version: whether the list ends where its count does, place of the name, address."""
        address = self._tags.get("DT_VERNEED", 0)
        for left in range(self._tags.get("DT_VERNEEDNUM", 0) if address else 0, 0, -1):
            _, count, name, first, after = struct.unpack("<HHIII", self._read(address, _ENTRY))
            yield (after == 0) == (left == 1), name, address
            inner = address + first
            for more in range(count, 0, -1):
                _, _, _, version, following = struct.unpack("<IHHII", self._read(inner, _ENTRY))
                yield (following == 0) == (more == 1), version, inner
                inner += following
            address += after

    def _version_places(self) -> list[int]:
        return [place for _, place, _ in self._version_entries()]

    def _versions(self) -> Iterator[str]:
        section = self._named.get(".gnu.version_r")
        if (section["sh_info"] if section else 0) != self._tags.get("DT_VERNEEDNUM", 0):
            yield "DT_VERNEEDNUM is not the number of .gnu.version_r"
        if not all(ends for ends, *_ in self._version_entries()):
            yield "a list of versions does not end where its count does"

    def _relocations(self) -> Iterator[str]:
        for table, size in (("DT_RELA", "DT_RELASZ"), ("DT_JMPREL", "DT_PLTRELSZ")):
            data = self._read(self._tags[table], self._tags.get(size, 0)) if table in self._tags else b""
            if len(data) % _SYMBOL:
                yield f"{size} is not a number of relocations"
                continue
            for place, info, _ in struct.iter_unpack("<QQQ", data):
                if info >> 32 >= self._count:
                    yield "a relocation has a symbol behind .dynsym"
                    return
                size_there = _LONG if info & 0xFFFFFFFF == _DESCRIPTOR else 8
                if info & 0xFFFFFFFF == _COPY or self._in_tables(place, size_there):
                    yield "a relocation changes tables of the loader"
                    return
        if any(self._in_tables(place, 8) for place in self._relative_places()):
            yield "a relocation changes tables of the loader"

    def _in_tables(self, place: int, size: int) -> bool:
        return any(place < end and start < place + size for start, end in self._tables)

    def _relative_places(self) -> Iterator[int]:
        """Of DT_RELR: an even entry is a place, the bits of an odd one are the 63 places behind."""
        data = (
            self._read(self._tags["DT_RELR"], self._tags.get("DT_RELRSZ", 0))
            if "DT_RELR" in self._tags
            else b""
        )
        at = 0
        for (entry,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
            if entry & 1:
                yield from (at + 8 * bit for bit in range(63) if entry >> (bit + 1) & 1)
                at += 8 * 63
            else:
                yield entry
                at = entry + 8

    def _lookups(self) -> Iterator[str]:
        """Each symbol that tools list is found by its hash, and no other."""
        address = self._tags["DT_GNU_HASH"]
        buckets, first, blooms, shift = self._words(address, 4)
        bloom = struct.unpack(f"<{blooms}Q", self._read(address + 16, 8 * blooms))
        heads = self._words(address + 16 + 8 * blooms, buckets)
        length = max(self._count - first, 0)
        chains = self._words(address + 16 + 8 * blooms + 4 * buckets, length)
        if not buckets or not blooms or blooms & (blooms - 1) or first > self._count:
            yield ".gnu.hash is not a table"
            return
        symbols = self._symbols()
        versions = self._versym()
        found: set[int] = set()
        for bucket, head in enumerate(heads):
            at = head
            while head:
                if not first <= at < self._count or at in found:
                    yield ".gnu.hash leads to symbols behind .dynsym, or in circles"
                    return
                found.add(at)
                value = _gnu_hash(self._text(symbols[at][0]))
                bits = 1 << value % 64 | 1 << (value >> shift) % 64
                seen = bloom[value // 64 % blooms] & bits == bits and value % buckets == bucket
                if not seen or (value ^ chains[at - first]) >> 1:
                    yield f"{self._text(symbols[at][0]).decode(errors='replace')[:80]} is not at its place in .gnu.hash"
                    return
                if chains[at - first] & 1:
                    break
                at += 1
        defined = {n for n, (_, info, _, section, *_) in enumerate(symbols) if section and info >> 4}
        if defined - found:
            yield "a symbol is not in .gnu.hash"
        if found - defined:
            yield "a symbol that is not defined is in .gnu.hash"
        if versions and any(versions[number] != 1 for number in defined):
            yield "a symbol has a version"
        for number in sorted(defined):
            place, info, other, section, value, _ = symbols[number]
            placed = value or section == _ABSOLUTE or info & 15 == _OF_THREADS
            if not placed or other & 3 in _HIDDEN or info >> 4 not in _BINDINGS or info & 15 not in _KINDS:
                yield f"{self._text(place).decode(errors='replace')[:80]} is passed over"
                return

    def _versym(self) -> tuple[int, ...]:
        address = self._tags.get("DT_VERSYM")
        return struct.unpack(f"<{self._count}H", self._read(address, 2 * self._count)) if address else ()


def _gnu_hash(name: bytes) -> int:
    """By Bernstein's function, of the name's bytes."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _segment_place(segment: Any) -> tuple[int, int, int]:
    return segment["p_offset"], segment["p_vaddr"], segment["p_filesz"]


def _place(section: Any) -> tuple[int, int, int]:
    return section["sh_offset"], section["sh_addr"], section["sh_size"]


def _loads(segment: Any, section: Any) -> bool:
    offset, address, size = _place(section)
    first = segment["p_offset"]
    inside = first <= offset and offset + size <= first + segment["p_filesz"]
    return bool(inside and address - offset == segment["p_vaddr"] - first)
