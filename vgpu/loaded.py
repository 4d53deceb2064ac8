"""Check that a GPU's loader maps and enters the code that readers of a code object's sections see.

The virtual GPU reads sections and symbols; a loader maps segments and enters a kernel at the offset in
its descriptor.
"""

import struct
from collections.abc import Mapping

from vgpu.code_object import CodeObjectError, kernel_metadata, metadata
from vgpu.elf import ElfFile, read_elf

_MACHINE, _SHARED_OBJECT = 224, 3
_ABI = (64, 3)
"""HSA, code objects of version 5."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _EXECUTED, _WRITTEN = 1, 1, 2
_SHT_NOBITS = 8
_DYNAMIC_RELOCATIONS = frozenset({7, 17, 23, 36})
"""DT_RELA, DT_REL, DT_JMPREL, DT_RELR."""
_LOADED = (".text", ".rodata", ".dynsym", ".dynstr", ".dynamic")
_DESCRIPTOR_BYTES = 64


def is_code_object(data: bytes) -> bool:
    """Whether the bytes begin as an ELF file for AMD's GPUs does."""
    return (
        len(data) >= _HEADER.size
        and data[:6] == b"\x7fELF\x02\x01"
        and data[18:20] == struct.pack("<H", _MACHINE)
    )


def check_loaded(data: bytes, flags_of: Mapping[str, int]) -> None:
    """Raises CodeObjectError unless it is one kernel of a known arch, loaded as its sections show.

    `flags_of`: the ELF header's flags by arch (`elf_flags`).
    """
    try:
        elf = read_elf(data)
        _check_header(data, flags_of)
        _check_relocations(elf)
        _check_segments(data, elf)
        _check_entry(data, elf)
    except (struct.error, IndexError, KeyError, TypeError, OverflowError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise CodeObjectError(f"{fault}, so a GPU may execute other code than its sections show")


def _check_header(data: bytes, flags_of: Mapping[str, int]) -> None:
    """The arch and the ABI are those that the metadata state."""
    ident, kind, _, _, _, _, _, flags, *_ = _HEADER.unpack_from(data)
    stated = metadata(data)
    _require(kind == _SHARED_OBJECT, f"its ELF type is {kind}, not that of a shared object")
    arch = str(stated["amdhsa.target"]).rpartition("-")[2]
    _require(flags_of.get(arch) == flags, f"its metadata state {arch}, its header {flags:#x}")
    versions = (ident[7], ident[8]), stated["amdhsa.version"]
    _require(versions == (_ABI, [1, 2]), f"its ABI and metadata are of versions {versions}")


def _check_relocations(elf: ElfFile) -> None:
    _require(elf.relocations == 0, f"it has {elf.relocations} relocations")
    tags = {tag for tag, _ in struct.iter_unpack("<QQ", elf.section(".dynamic").data)}
    _require(not tags & _DYNAMIC_RELOCATIONS, "its dynamic section has relocations")


def _check_segments(data: bytes, elf: ElfFile) -> None:
    """Segments load the bytes of the sections; of these only .text is executable."""
    start, size, count = struct.unpack_from("<32xQ14xHH", data)
    segments = [_SEGMENT.unpack_from(data, start + number * size) for number in range(count)]
    for name in _LOADED:
        section = elf.section(name)
        loaded = elf.memory[section.address : section.address + section.size]
        _require(
            section.kind != _SHT_NOBITS and loaded == section.data,
            f"its segments load other bytes than {name} has",
        )
    text = elf.section(".text")
    code = [one[1:] for one in segments if one[0] == _LOAD and one[1] & _EXECUTED]
    places = [(address, in_memory) for _, _, address, _, _, in_memory, _ in code]
    _require(places == [(text.address, text.size)], "its executable segment is not .text")
    _require(not code[0][0] & _WRITTEN, "its executable segment can be written")


def _check_entry(data: bytes, elf: ElfFile) -> None:
    """The kernel's descriptor leads to its symbol in .text and states the same memory as the metadata."""
    kernel = kernel_metadata(data)
    name, described = str(kernel[".name"]), str(kernel[".symbol"])
    descriptors = [symbol.name for symbol in elf.symbols if symbol.name.endswith(".kd")]
    _require(descriptors == [described] == [f"{name}.kd"], "it has not exactly one kernel")
    at, code, text = elf.symbol(described).value, elf.symbol(name), elf.section(".text")
    _require(text.address <= code.value < text.address + text.size, "its kernel is not in .text")
    descriptor = elf.memory[at : at + _DESCRIPTOR_BYTES]
    lds, scratch, arguments, _, entry = struct.unpack_from("<IIIIq", descriptor)
    offset = at + entry - code.value
    _require(offset == 0, f"its descriptor's entry is {offset} bytes from the kernel")
    stated = (
        (".group_segment_fixed_size", lds),
        (".private_segment_fixed_size", scratch),
        (".kernarg_segment_size", arguments),
    )
    for field, value in stated:
        _require(
            kernel[field] == value, f"its metadata state {field} {kernel[field]}, its descriptor {value}"
        )
