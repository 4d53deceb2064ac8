"""A shared library's dynamic tags, segments, sections and symbol versions, read with pyelftools."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection


class LibraryFileError(ValueError):
    """A file that is not a readable ELF file."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """`tags` are values by dynamic tag (none in a file without a dynamic section), `segments` (type, flags) pairs, `versions` the
    symbol versions that it needs, such as GLIBC_2.34."""

    machine: str
    tags: Mapping[str, list[Any]]
    segments: tuple[tuple[str, int], ...]
    sections: tuple[str, ...]
    versions: tuple[str, ...]

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


def read_shared_library(path: Path) -> SharedLibrary:
    """Raises OSError, LibraryFileError."""
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            versions = elf.get_section_by_name(".gnu.version_r")
            entries = versions.iter_versions() if isinstance(versions, GNUVerNeedSection) else ()
            return SharedLibrary(
                machine=elf["e_machine"],
                tags=_dynamic_tags(elf),
                segments=tuple((segment["p_type"], segment["p_flags"]) for segment in elf.iter_segments()),
                sections=tuple(section.name for section in elf.iter_sections()),
                versions=tuple(entry.name for _, group in entries for entry in group),
            )
    except ELFError as error:
        raise LibraryFileError(str(error)) from error


def _dynamic_tags(elf: Any) -> dict[str, list[Any]]:
    tags: dict[str, list[Any]] = {}
    section = elf.get_section_by_name(".dynamic")
    for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
        value = getattr(tag, "soname", None) or getattr(tag, "needed", None) or tag.entry.d_val
        tags.setdefault(tag.entry.d_tag, []).append(value)
    return tags
