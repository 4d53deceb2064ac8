"""Source lines of instructions: the DWARF line table of a build whose machine code equals the image's.

Shipped images have no line info. The same kernel compiled with it must have the same `.text`, byte for byte:
a probable line would mislead.
Format: DWARF 4 (dwarfstd.org), line number program and DW_TAG_inlined_subroutine.
"""

import bisect
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile

from vgpu.code_object import CodeObjectError
from vgpu.elf import read_elf
from vgpu.errors import DecodeError

_BROKEN = (CodeObjectError, ELFError, DWARFError, KeyError, IndexError, ValueError, TypeError)


@dataclass(frozen=True, kw_only=True)
class Inlined:
    """An inlined function: byte ranges from the kernel's first instruction, and the call's location."""

    ranges: tuple[tuple[int, int], ...]
    called: str


@dataclass(frozen=True, kw_only=True)
class LineMap:
    """`places` hold from the byte in `starts` to the next; empty: no line. `inlined`: outer functions
    first."""

    starts: tuple[int, ...]
    places: tuple[str, ...]
    inlined: tuple[Inlined, ...]

    def at(self, address: int) -> str | None:
        """`flash/common.py:19, called from flash/forward.py:68` for the instruction at a byte, or None."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0:
            return None
        calls = [i.called for i in self.inlined if any(low <= address < high for low, high in i.ranges)]
        places = [place for place in (self.places[index], *reversed(calls)) if place]
        return ", called from ".join(places) if places else None


def read_lines(with_lines: bytes, hsaco: bytes, kernel: str, *, root: Path) -> LineMap:
    """The map of an image from a build of the kernel with line info; files are named relative to `root`.
    Raises DecodeError when the two have different machine code, or without readable line info."""
    try:
        elf = read_elf(with_lines)
        if elf.section(".text").data != read_elf(hsaco).section(".text").data:
            raise DecodeError(
                f"source lines of {kernel} are not known: its build with line info has other machine code",
                cause="kernel sources or compiler are not those that the image was made with",
                hint="compile from the sources and with the toolchain that the release names",
            )
        start = elf.symbol(kernel).value
        dwarf = ELFFile(io.BytesIO(with_lines)).get_dwarf_info()
        if not dwarf.has_debug_info:
            raise DecodeError(f"the build of {kernel} has no line info")
        return _line_map(dwarf, start, root.resolve())
    except _BROKEN as error:
        raise DecodeError(f"line info of {kernel} cannot be read: {error}") from error


def _line_map(dwarf: Any, start: int, root: Path) -> LineMap:
    found: dict[int, str] = {}
    inlined: list[Inlined] = []
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        names = _file_names(program, root)
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            at = state.address - start
            place = "" if state.end_sequence or not state.line else f"{names[state.file - 1]}:{state.line}"
            if place or at not in found:
                found[at] = place
        inlined += _inlined(dwarf, unit, names, start)
    starts = sorted(found)
    return LineMap(starts=tuple(starts), places=tuple(found[at] for at in starts), inlined=tuple(inlined))


def _file_names(program: Any, root: Path) -> list[str]:
    """Names of the table's files in order; DWARF 4 counts files and directories from 1."""
    folders = ["", *(folder.decode() for folder in program["include_directory"])]
    files = program["file_entry"]
    return [_shown(PurePosixPath(folders[f.dir_index]) / f.name.decode(), root) for f in files]


def _shown(path: PurePosixPath, root: Path) -> str:
    if not path.is_absolute():  # of kernels: the compiler's workers name them so
        return str(path)
    if path.is_relative_to(root):
        return str(path.relative_to(root))
    parts = path.parts  # a library's file by its module's path, on any machine
    known = parts.index("site-packages") + 1 if "site-packages" in parts else len(parts) - 1
    return "/".join(parts[known:])


def _inlined(dwarf: Any, unit: Any, names: list[str], start: int) -> Iterator[Inlined]:
    """In the tree's order, so that callers come before functions that are inlined into them."""
    base = unit.get_top_DIE().attributes["DW_AT_low_pc"].value
    for entry in unit.iter_DIEs():
        if entry.tag != "DW_TAG_inlined_subroutine":
            continue
        ranges = tuple((low - start, high - start) for low, high in _ranges(dwarf, entry.attributes, base))
        line = entry.attributes.get("DW_AT_call_line")
        if line is not None and line.value:
            called = f"{names[entry.attributes['DW_AT_call_file'].value - 1]}:{line.value}"
            yield Inlined(ranges=ranges, called=called)


def _ranges(dwarf: Any, attributes: Any, base: int) -> Iterator[tuple[int, int]]:
    if "DW_AT_ranges" not in attributes:
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        yield low, high.value + (0 if high.form == "DW_FORM_addr" else low)
        return
    for entry in dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value):
        if hasattr(entry, "base_address"):
            base = entry.base_address
        else:
            offset = 0 if entry.is_absolute else base
            yield entry.begin_offset + offset, entry.end_offset + offset
