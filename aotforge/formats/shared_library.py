"""A shared library's dynamic tags, segments, sections and symbol versions, read with pyelftools."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from aotforge.formats.untrusted_file import open_regular

_READ_LIMIT = 8 * 1024 * 1024
"""Bytes of headers, tables and names that are read of a file; libtorch_cpu.so has an eighth of it."""

_LEAST = 4
"""What a shorter read counts as, for the time that it takes."""

_DAMAGED = (ELFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What pyelftools raises for damaged files."""


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
_REPEATED = {"DT_NEEDED", "DT_NULL"}
_ALLOCATED, _PAGE = 2, 4096


class LibraryFileError(ValueError):
    """A file that is not a readable ELF file."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """`tags` are values by dynamic tag (none in a file without a dynamic section), `segments` (type, flags) pairs, `versions` the
    symbol versions that it needs, such as GLIBC_2.34, `differences` what the system's loader reads otherwise: it knows segments only."""

    machine: str
    tags: Mapping[str, list[Any]]
    segments: tuple[tuple[str, int], ...]
    sections: tuple[str, ...]
    versions: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def needed(self) -> list[str]:
        """Names of the libraries that it depends on."""
        return self.tags.get("DT_NEEDED", [])

    @property
    def sonames(self) -> list[str]:
        """Its own name; more than one, or none, in a file that is damaged or not a library."""
        return self.tags.get("DT_SONAME", [])

    def flag(self, tag: str, bit: int) -> bool:
        """True when a dynamic tag has a bit."""
        return bool(self.tags.get(tag, [0])[0] & bit)


class _Metered:
    """A file as pyelftools uses it. The tables of a hostile one lead in circles: they end with the bytes that may be read."""

    def __init__(self, file: FileIO) -> None:
        self._file, self._left = file, _READ_LIMIT

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int) -> bytes:
        self._left -= max(size, _LEAST)
        if self._left < 0:
            raise LibraryFileError("its headers, tables and names do not end")
        return self._file.read(size) or b""


@contextmanager
def open_elf(path: Path) -> Iterator[ELFFile]:
    """pyelftools' reader for an ELF file that may be hostile. Raises OSError, LibraryFileError, also for what it raises in the block."""
    with open_regular(path) as file:
        try:
            yield ELFFile(_Metered(file))
        except LibraryFileError:
            raise
        except _DAMAGED as error:
            raise LibraryFileError(str(error)) from error


def read_shared_library(path: Path) -> SharedLibrary:
    """Raises OSError, LibraryFileError."""
    with open_elf(path) as elf:
        versions = elf.get_section_by_name(".gnu.version_r")
        entries = versions.iter_versions() if isinstance(versions, GNUVerNeedSection) else ()
        tags = _dynamic_tags(elf)
        return SharedLibrary(
            machine=elf["e_machine"],
            tags=tags,
            differences=tuple(_differences(elf, tags)),
            segments=tuple((segment["p_type"], segment["p_flags"]) for segment in elf.iter_segments()),
            sections=tuple(section.name for section in elf.iter_sections()),
            versions=tuple(entry.name for _, group in entries for entry in group),
        )


def undefined_symbols(path: Path) -> frozenset[str]:
    """Names of the symbols that a file needs from others, without weak ones. Raises OSError, LibraryFileError."""
    with open_elf(path) as elf:
        tables = [one for one in elf.iter_sections() if isinstance(one, SymbolTableSection)]
        return frozenset(
            one.name
            for table in tables
            for one in table.iter_symbols()
            if one["st_shndx"] == "SHN_UNDEF" and one["st_info"]["bind"] != "STB_WEAK"
        )


def _dynamic_tags(elf: Any) -> dict[str, list[Any]]:
    tags: dict[str, list[Any]] = {}
    section = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
        value = getattr(tag, "soname", None) or getattr(tag, "needed", None) or tag.entry.d_val
        tags.setdefault(tag.entry.d_tag, []).append(value)
    return tags


def _differences(elf: Any, tags: Mapping[str, list[Any]]) -> Iterator[str]:
    """Segments that overlap, sections that are loaded from other bytes, and tables that dynamic tags have elsewhere."""
    segments, sections = list(elf.iter_segments()), list(elf.iter_sections())
    loads = [one for one in segments if one["p_type"] == "PT_LOAD"]
    for before, after in itertools.pairwise(loads):
        end = before["p_vaddr"] + before["p_memsz"]
        shared = _pages(after["p_vaddr"]) < _pages(end + _PAGE - 1)
        same = before["p_vaddr"] - before["p_offset"] == after["p_vaddr"] - after["p_offset"]
        if after["p_vaddr"] < end or (shared and not same):
            yield f"the segments at {before['p_vaddr']:#x} and {after['p_vaddr']:#x} overlap"
    named = {one.name: one for one in sections}
    if len(named) != len(sections):
        yield "two sections have one name"
    for one in sections:
        if (
            one["sh_flags"] & _ALLOCATED
            and one["sh_type"] != "SHT_NOBITS"
            and not any(_loads(load, one) for load in loads)
        ):
            yield f"{one.name} is loaded from other bytes"
    dynamic = [
        (one["p_offset"], one["p_vaddr"], one["p_filesz"])
        for one in segments
        if one["p_type"] == "PT_DYNAMIC"
    ]
    if dynamic != [_place(one) for one in sections if one["sh_type"] == "SHT_DYNAMIC"] or len(dynamic) > 1:
        yield "its dynamic segment is not its dynamic section"
    repeated = [tag for tag, values in tags.items() if len(values) > 1 and tag not in _REPEATED]
    yield from (f"{tag} is there twice" for tag in repeated)
    for tag, name in _PLACES.items():
        section = named.get(name)
        if tags.get(tag, []) != ([section["sh_addr"]] if section else []):
            yield f"{tag} is not the address of {name}"
    texts = named.get(".dynstr")
    if tags.get("DT_STRSZ", []) != ([texts["sh_size"]] if texts else []):
        yield "DT_STRSZ is not the size of .dynstr"
    for name in (".dynamic", ".dynsym", ".gnu.version_r", ".gnu.version_d"):
        if name in named and sections[named[name]["sh_link"]] is not texts:
            yield f"{name} has its names elsewhere"


def _pages(address: int) -> int:
    return address // _PAGE


def _place(section: Any) -> tuple[int, int, int]:
    return section["sh_offset"], section["sh_addr"], section["sh_size"]


def _loads(segment: Any, section: Any) -> bool:
    offset, address, size = _place(section)
    first = segment["p_offset"]
    inside = first <= offset and offset + size <= first + segment["p_filesz"]
    return bool(inside and address - offset == segment["p_vaddr"] - first)
