"""A shared library's dynamic tags, segments and sections, read with pyelftools."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_DAMAGED = (ELFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What pyelftools raises for damaged files."""


class LibraryFileError(ValueError):
    """A file that is not a readable ELF file."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """`tags`: values by dynamic tag, `segments`: (type, flags)."""

    machine: str
    tags: Mapping[str, list[Any]]
    segments: tuple[tuple[str, int], ...]
    sections: tuple[str, ...]

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


@contextmanager
def open_elf(path: Path) -> Iterator[ELFFile]:
    """pyelftools' reader. Raises OSError, LibraryFileError, also for what it raises in the block."""
    with path.open("rb") as file:
        try:
            yield ELFFile(file)
        except _DAMAGED as error:
            raise LibraryFileError(f"{path.name} is not a readable library: {error}") from error


def read_shared_library(path: Path) -> SharedLibrary:
    """Raises OSError, LibraryFileError."""
    with open_elf(path) as elf:
        dynamic = elf.get_section_by_name(".dynamic")
        tags: dict[str, list[Any]] = {}
        for tag in dynamic.iter_tags() if isinstance(dynamic, DynamicSection) else ():
            value = getattr(tag, "soname", getattr(tag, "needed", tag.entry.d_val))
            tags.setdefault(tag.entry.d_tag, []).append(value)
        return SharedLibrary(
            machine=elf["e_machine"],
            tags=tags,
            segments=tuple((segment["p_type"], segment["p_flags"]) for segment in elf.iter_segments()),
            sections=tuple(section.name for section in elf.iter_sections()),
        )


def dynamic_symbols(path: Path, *, undefined: bool = False, table: str = ".dynsym") -> frozenset[str]:
    """Symbols that an ELF file has for others, or needs from others (`undefined`, without weak ones).

    Raises OSError, LibraryFileError.
    """
    with open_elf(path) as elf:
        section = elf.get_section_by_name(table)
        entries = section.iter_symbols() if isinstance(section, SymbolTableSection) else ()
        return frozenset(
            symbol.name
            for symbol in entries
            if symbol.name
            and symbol["st_info"]["bind"] != ("STB_WEAK" if undefined else "STB_LOCAL")
            and (symbol["st_shndx"] == "SHN_UNDEF") == undefined
        )
