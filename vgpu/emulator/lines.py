"""Source lines of an image's instructions, from another build of its kernel.

Shipped images have no line info. The same kernel compiled with it must have the same `.text`, byte for byte:
a probable line would mislead. The lines are those of its assembly text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from vgpu.code_object import CodeObjectError
from vgpu.elf import read_elf
from vgpu.emulator.assembly import instruction_addresses
from vgpu.emulator.debugger.locations import source_files, source_lines
from vgpu.emulator.listing import parse_listing
from vgpu.errors import DecodeError


@dataclass(frozen=True, kw_only=True)
class LineMap:
    """Locations by the address of an instruction, without those for which the compiler names no line."""

    places: Mapping[int, str]

    def at(self, address: int) -> str | None:
        """`flash/common.py:19, called from flash/forward.py:68` for the instruction at a byte, or None."""
        return self.places.get(address)


def read_lines(text: str, with_lines: bytes, hsaco: bytes) -> LineMap:
    """The map of an image from a build with line info. Raises DecodeError unless both have one machine
    code."""
    listing = parse_listing(text)
    try:
        same = read_elf(with_lines).section(".text").data == read_elf(hsaco).section(".text").data
    except CodeObjectError as error:
        raise DecodeError(f"line info of {listing.kernel} cannot be read: {error}") from error
    if not same:
        raise DecodeError(
            f"source lines of {listing.kernel} are unknown: its build with line info has other machine code",
            cause="kernel sources or compiler are not those that the image was made with",
            hint="compile from the sources and with the toolchain that the release names",
        )
    source = source_lines(text, listing)
    if not source:
        raise DecodeError(f"the build of {listing.kernel} has no line info")
    names: dict[str, str] = {}
    for folder, file in source_files(text).values():
        if names.setdefault(file, _shown(folder, file)) != _shown(folder, file):
            names[file] = file  # comments name callers without their folder
    places = {}
    for line, address in zip(
        listing.lines, instruction_addresses(text, listing.kernel, listing.arch), strict=False
    ):
        if here := source.get(line.number):
            calls = [f"{names.get(file, file)}:{number}" for file, number in here.callers]
            places[address] = ", called from ".join([f"{_shown(here.folder, here.file)}:{here.line}", *calls])
    return LineMap(places=places)


def _shown(folder: str, file: str) -> str:
    """Files of kernels have relative names already, a library's is named by its module's path."""
    path = PurePosixPath(folder) / file
    parts = path.parts
    known = parts.index("site-packages") + 1 if "site-packages" in parts else len(parts) - 1
    return "/".join(parts[known:]) if path.is_absolute() else str(path)
