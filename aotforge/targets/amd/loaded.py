"""Checks that a GPU's loader maps and enters the code that readers of a code object's sections see.

The virtual GPU reads sections and symbols; a loader maps program headers and enters a kernel at the offset in its descriptor. Files
of Triton's linker have one layout, and everything else is refused.
"""

import itertools
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotforge.formats.code_object import CodeObjectError, kernel_metadata, metadata
from aotforge.formats.elf import ElfFile, Section, read_elf
from aotforge.targets.amd.code_object import HIDDEN_ARGUMENTS

_MACHINE, _SHARED_OBJECT = 224, 3
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC, _NOTE, _PHDR, _STACK, _RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552
_EXECUTED, _WRITTEN = 1, 2
_SHT_SYMTAB, _SHT_STRTAB, _SHT_NOBITS, _SHT_NOTE, _SHT_DYNSYM = 2, 3, 8, 7, 11
_SECTION_KINDS = frozenset(
    {0, 1, _SHT_SYMTAB, _SHT_STRTAB, 5, 6, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM, 0x6FFFFFF6}
)
"""None, data, symbols, texts, hashes, dynamic, notes, zeros, exported symbols, GNU's hashes: no relocations, no constructors."""
_ALLOCATED, _INSTRUCTIONS = 2, 4
_READ = frozenset({".note", ".dynsym", ".dynstr", ".rodata", ".text", ".dynamic"})
_TAGS = {4: ".hash", 5: ".dynstr", 6: ".dynsym", 0x6FFFFEF5: ".gnu.hash"}
"""Dynamic tags whose value is a section's address."""
_END, _TEXTS_SIZE, _SYMBOL_SIZE = 0, 10, 11
_PADDING_LIMIT, _NOTE_LIMIT = 1 << 16, 1 << 16
"""Of loaded bytes that the file does not have (segments begin on other pages), and of metadata; compilers write less than 16 kB of each."""
_DESCRIPTOR_BYTES, _CODE_ALIGNMENT = 64, 256
_WAVE32, _DYNAMIC_STACK = 10, 11
_MODES = {"gfx9": 0x2BC0, "gfx10": 0x382BC0, "gfx11": 0x382BC0, "gfx12": 0x3803C0}
"""RSRC1 from bit 10 on, as compilers write it: rounding, denormals, clamping and IEEE modes, no privilege, debugger or bulky mode."""
_ARCHS = {
    0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032",
    0x3E: "gfx1034", 0x3D: "gfx1035", 0x45: "gfx1036", 0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150",
    0x4A: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201",
}  # fmt: skip
"""By the lowest byte of the ELF header's flags."""
_ANY_FEATURES = 0x500
"""Flags of gfx9's code for any setting of XNACK and SRAM-ECC: a loader refuses other code where the setting is another."""
_ABI = (64, 3)
"""HSA, code objects of version 5."""
_RSRC3_BITS = {"gfx9": 0x3F, "gfx11": 0x3F0, "gfx12": 0xFF0}
"""The first accumulation register (of archs with one file of registers) and instructions to prefetch. Waves of a workgroup that are on
several compute units (tg_split) have no LDS."""
_SPLIT_FILES = ("gfx906", "gfx908")
_RSRC2_BITS = 0x1BBF
"""Of RSRC2: scratch, user SGPRs, ids of workgroup and work item. Exceptions and traps are none of them."""
_USER_SGPRS = (4, 2, 2, 2, 2, 2, 1)
"""By the bits of the descriptor's properties: scratch buffer, dispatch packet, queue, arguments, dispatch id, flat scratch, its size."""
_CODE_BYTES = 1 << 19
"""Of .text: own kernels have 56 KB, and an instruction of 4 bytes takes the emulator 2 kB."""
_HIDDEN_BYTES, _ARGUMENT_BYTES, _SCRATCH_BYTES = 256, 1 << 16, 1 << 17
"""The most of hidden arguments, of all arguments, and of a work-item's private memory: gfx9's waves have 8 MiB of it."""
_PRELOADED = 0x7F
"""Arguments that are loaded into user SGPRs, in words. LLVM fills up to 16 SGPRs on gfx11, whose hardware needs them."""
_TOP_KEYS = frozenset({"amdhsa.kernels", "amdhsa.target", "amdhsa.version"})
_KERNEL_KEYS = frozenset(
    [
        ".agpr_count",
        ".args",
        ".group_segment_fixed_size",
        ".kernarg_segment_align",
        ".kernarg_segment_size",
        ".max_flat_workgroup_size",
        ".name",
        ".private_segment_fixed_size",
        ".sgpr_count",
        ".sgpr_spill_count",
        ".symbol",
        ".uniform_work_group_size",
        ".uses_dynamic_stack",
        ".vgpr_count",
        ".vgpr_spill_count",
        ".wavefront_size",
        ".workgroup_processor_mode",
    ]
)
"""What compilers write of a kernel: no `.kind`, by which it would be executed when it is loaded, and no required workgroup size."""


@dataclass(frozen=True, kw_only=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    in_file: int
    in_memory: int


def is_code_object(data: bytes) -> bool:
    """Whether the bytes begin as an ELF file for AMD's GPUs does."""
    return (
        len(data) >= _HEADER.size
        and data[:6] == b"\x7fELF\x02\x01"
        and data[18:20] == struct.pack("<H", _MACHINE)
    )


def check_loaded(data: bytes) -> None:
    """Raises CodeObjectError for a code object whose segments, sections, symbols, metadata and descriptor do not agree."""
    try:
        segments, flags = _headers(data)
        _check_segments(segments, len(data))
        elf = read_elf(data)
        _check_sections(elf, flags, segments)
        _check_dynamic(elf)
        _check_note(elf)
        _check_kernel(elf, _symbols(elf), data)
    except (struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, CodeObjectError):
            raise
        raise CodeObjectError(f"truncated or damaged: {error}") from error


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise CodeObjectError(f"{fault}, so a GPU may execute other code than its sections show")


def _headers(data: bytes) -> tuple[list[_Segment], list[int]]:
    """Segments, and the flags of sections."""
    _, kind, _, _, _, start, sections, _, _, size, count, section_size, section_count, _ = (
        _HEADER.unpack_from(data)
    )
    sizes = kind, size, section_size
    _require(
        sizes == (_SHARED_OBJECT, _SEGMENT.size, _SECTION.size),
        "its headers are not those of a shared object",
    )
    found = []
    for number in range(count):
        what, flags, offset, address, _, in_file, in_memory, _ = _SEGMENT.unpack_from(
            data, start + number * _SEGMENT.size
        )
        found.append(
            _Segment(
                kind=what, flags=flags, offset=offset, address=address, in_file=in_file, in_memory=in_memory
            )
        )
    places = (sections + number * _SECTION.size for number in range(section_count))
    return found, [_SECTION.unpack_from(data, place)[2] for place in places]


def _check_segments(segments: Sequence[_Segment], size: int) -> None:
    counts = Counter(segment.kind for segment in segments)
    once = all(counts[kind] == 1 for kind in (_DYNAMIC, _NOTE))
    known = counts.keys() <= {_LOAD, _DYNAMIC, _NOTE, _PHDR, _STACK, _RELRO}
    _require(once and known, f"its program headers are of kinds {dict(counts)}")
    loads = [segment for segment in segments if segment.kind == _LOAD]
    _require(bool(loads), "it loads nothing")
    for before, after in itertools.pairwise(loads):
        apart = (
            before.address + before.in_memory <= after.address
            and before.offset + before.in_file <= after.offset
        )
        _require(apart, "its segments overlap or are not sorted")
    _require(
        loads[-1].address + loads[-1].in_memory <= size + _PADDING_LIMIT,
        "its segments are larger than the file",
    )


def _check_sections(elf: ElfFile, flags: Sequence[int], segments: Sequence[_Segment]) -> None:
    names = [section.name for section in elf.sections]
    _require(len(set(names)) == len(names), "two of its sections have one name")
    kinds = {section.kind for section in elf.sections}
    _require(kinds <= _SECTION_KINDS, f"its sections are of kinds {sorted(kinds)}")
    for section, flag in zip(elf.sections, flags, strict=True):
        if (flag & _ALLOCATED or section.name in _READ) and section.kind != _SHT_NOBITS:
            loaded = elf.memory[section.address : section.address + section.size]
            _require(loaded == section.data, f"its segments load other bytes than {section.name} has")
    text, note, dynamic = (elf.section(name) for name in (".text", ".note", ".dynamic"))
    _require(text.size <= _CODE_BYTES, f"it has {text.size} bytes of code")
    executed = [
        section.name for section, flag in zip(elf.sections, flags, strict=True) if flag & _INSTRUCTIONS
    ]
    code = [segment for segment in segments if segment.kind == _LOAD and segment.flags & _EXECUTED]
    _require(executed == [".text"] and len(code) == 1, "it has executable bytes outside of .text")
    _require(_is(code[0], text) and not code[0].flags & _WRITTEN, "its executable segment is not .text")
    for segment in segments:
        if segment.kind in {_NOTE, _DYNAMIC}:
            _require(
                _is(segment, note if segment.kind == _NOTE else dynamic),
                "its dynamic section or note is another",
            )


def _is(segment: _Segment, section: Section) -> bool:
    sizes = segment.in_file, segment.in_memory
    return (segment.offset, segment.address, *sizes) == (
        section.offset,
        section.address,
        section.size,
        section.size,
    )


def _check_dynamic(elf: ElfFile) -> None:
    """The loader finds symbols where the sections are, and relocates nothing."""
    pairs = list(struct.iter_unpack("<QQ", elf.section(".dynamic").data))
    tags = [tag for tag, _ in pairs if tag != _END]
    values = dict(pairs)
    known = set(tags) <= {*_TAGS, _TEXTS_SIZE, _SYMBOL_SIZE} and {5, 6} <= set(tags)
    _require(known and len(set(tags)) == len(tags), f"its dynamic section has tags {tags}")
    placed = all(values[tag] == elf.section(name).address for tag, name in _TAGS.items() if tag in values)
    sized = values[_TEXTS_SIZE] == elf.section(".dynstr").size and values[_SYMBOL_SIZE] == _SYMBOL.size
    _require(placed and sized, "its dynamic section names other places than its sections have")


def _check_note(elf: ElfFile) -> None:
    data = elf.section(".note").data
    name_size, size, _ = struct.unpack_from("<III", data)
    notes = sum(section.kind == _SHT_NOTE for section in elf.sections)
    end = 12 + -(-name_size // 4) * 4 + -(-size // 4) * 4
    _require(notes == 1 and end == len(data) <= _NOTE_LIMIT, "it has several notes, or a long one")


def _symbols(elf: ElfFile) -> dict[str, tuple[int, int]]:
    """Address and size by name; names are unique, and exported symbols are the global ones."""
    tables = [section for section in elf.sections if section.kind in {_SHT_SYMTAB, _SHT_DYNSYM}]
    places = {section.name: elf.sections[section.link].name for section in tables}
    _require(places == {".symtab": ".strtab", ".dynsym": ".dynstr"}, "its tables of symbols are unusual")
    entries = {table.name: _entries(elf, table) for table in tables}
    exported = {name: rest for name, rest in entries[".symtab"].items() if rest[0] >> 4}
    _require(exported == entries[".dynsym"], "its tables of symbols differ")
    return {name: (value, size) for name, (_, _, _, value, size) in entries[".symtab"].items()}


def _entries(elf: ElfFile, table: Section) -> dict[str, tuple[int, int, int, int, int]]:
    names, found = elf.sections[table.link].data, {}
    for at, *rest in list(_SYMBOL.iter_unpack(table.data))[1:]:
        name = names[at : names.index(b"\0", at)].decode()
        _require(
            bool(name) and name not in found and rest[2] != 0,
            f"its symbol {name!r} is not unique or undefined",
        )
        info, other, where, value, size = rest
        found[name] = (info, other, where, value, size)
    return found


def _check_kernel(elf: ElfFile, symbols: dict[str, tuple[int, int]], data: bytes) -> None:
    kernel = kernel_metadata(data)
    name, described = str(kernel[".name"]), str(kernel[".symbol"])
    text, constants = elf.section(".text"), elf.section(".rodata")
    descriptors = [one for one in symbols if one.endswith(".kd")]
    _require(
        descriptors == [described] == [f"{name}.kd"] and name in symbols, "it has not exactly one kernel"
    )
    (at, size), (code, length) = symbols[described], symbols[name]
    inside = constants.address <= at and at + size <= constants.address + constants.size
    _require(
        inside and size == _DESCRIPTOR_BYTES and at % _DESCRIPTOR_BYTES == 0,
        "its kernel's descriptor is not in .rodata",
    )
    inside = text.address <= code and code + length <= text.address + text.size
    _require(inside and code % _CODE_ALIGNMENT == 0, "its kernel is not in .text")
    lds, scratch, arguments, _, entry = struct.unpack_from("<IIIIq", elf.memory, at)
    _require(at + entry == code, f"its descriptor's entry is {at + entry - code} bytes from the kernel")
    (properties,) = struct.unpack_from("<H", elf.memory, at + 56)
    _check_arguments(kernel)
    _check_scalars(data, elf.memory[at : at + _DESCRIPTOR_BYTES])
    _check_modes(kernel, data, *struct.unpack_from("<III", elf.memory, at + 44))
    stated = {
        ".group_segment_fixed_size": lds,
        ".private_segment_fixed_size": scratch,
        ".kernarg_segment_size": arguments,
        ".wavefront_size": 32 if properties >> _WAVE32 & 1 else 64,
        ".uses_dynamic_stack": bool(properties >> _DYNAMIC_STACK & 1),
    }
    for field, value in stated.items():
        found = kernel.get(field, False)
        _require(found == value, f"its metadata states {field} {found}, its descriptor {value}")


def _check_arguments(kernel: Mapping[str, Any]) -> None:
    """HIP passes the arguments as they are given: it replaces those of LDS by a place there, and refuses keys that it does not know."""
    for argument in kernel.get(".args", ()):
        kind = argument[".value_kind"]
        pointer = {".address_space": "global"} if kind == "global_buffer" else {}
        wanted = {".offset": argument[".offset"], ".size": argument[".size"], ".value_kind": kind, **pointer}
        known = kind in {"by_value", "global_buffer"} or kind in HIDDEN_ARGUMENTS
        _require(known and argument == wanted, f"its metadata have an argument {argument}")
    size = kernel[".kernarg_segment_size"]
    end = max((one[".offset"] + one[".size"] for one in kernel.get(".args", ())), default=0)
    _require(
        end <= size <= min(end + _HIDDEN_BYTES, _ARGUMENT_BYTES),
        f"its metadata state {size} bytes of arguments, which end at {end}",
    )


def _check_scalars(data: bytes, descriptor: bytes) -> None:
    """Every scalar register that a wave begins with is set, and scratch where it is used: the emulator sets all of them."""
    _, scratch = struct.unpack_from("<II", descriptor)
    (rsrc2,) = struct.unpack_from("<I", descriptor, 52)
    properties, preloaded = struct.unpack_from("<HH", descriptor, 56)
    enabled = bool(rsrc2 & 1)
    _require(scratch <= _SCRATCH_BYTES, f"its descriptor has {scratch} bytes of scratch")
    _require(enabled == (scratch > 0), f"its descriptor has {scratch} bytes of scratch, enabled: {enabled}")
    count = rsrc2 >> 1 & 31
    used = sum(words for bit, words in enumerate(_USER_SGPRS) if properties >> bit & 1)
    used += preloaded & _PRELOADED
    ids = (rsrc2 >> 7 & 7).bit_count()
    filled = str(metadata(data)["amdhsa.target"]).rpartition("-")[2].startswith("gfx11") and count + ids == 16
    _require(
        count == used or (filled and count > used),
        f"its descriptor has {count} user SGPRs, of which {used} are set",
    )


def _check_modes(kernel: Mapping[str, object], data: bytes, rsrc3: int, rsrc1: int, rsrc2: int) -> None:
    """The kernel runs in the modes that the emulator has: image and text of others could both state others."""
    every = metadata(data)
    _require(every.keys() == _TOP_KEYS, f"its metadata have {sorted(map(str, every))}")
    _require(kernel.keys() <= _KERNEL_KEYS, f"its metadata state {sorted(kernel.keys() - _KERNEL_KEYS)}")
    _require(kernel[".kernarg_segment_align"] == 8, "its arguments are not aligned to 8 bytes")
    arch = str(every["amdhsa.target"]).rpartition("-")[2]
    (flags,) = struct.unpack_from("<I", data, 48)
    generation = arch[:-2]
    features = _ANY_FEATURES if generation == "gfx9" else 0
    _require(
        _ARCHS.get(flags & 0xFF) == arch and flags & ~0xFF == features,
        f"its metadata state {arch}, its header {flags:#x}",
    )
    versions = (data[7], data[8]), every["amdhsa.version"]
    _require(versions == (_ABI, [1, 2]), f"its ABI and metadata are of versions {versions}")
    modes = rsrc1 >> 10
    _require(modes == _MODES.get(generation), f"its descriptor has modes {modes:#x} on {arch}")
    _require(not rsrc2 & ~_RSRC2_BITS, f"its descriptor has {rsrc2:#x}: exceptions or traps")
    known = 0 if arch in _SPLIT_FILES else _RSRC3_BITS.get(generation, 0)
    _require(not rsrc3 & ~known, f"its descriptor has {rsrc3:#x}: other waves or prefetches than {arch} has")
