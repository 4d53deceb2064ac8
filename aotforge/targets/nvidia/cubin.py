"""Reader of cubins: ELF files with `.nv.info` sections of attributes.

The format is not published. Attributes and their layouts are those that NVIDIA's `cuobjdump -elf` names for
cubins of CUDA 12.9 and 13.4: a byte for the form of the value, a byte for the attribute, two bytes of value
or of the value's size.
"""

import math
import struct
from dataclasses import dataclass

from aotforge.targets.backend import CodeObject, KernelArgument
from vgpu.code_object import CodeObjectError, ElfFile, read_elf

MACHINE = 190
"""EM_CUDA."""
_OLD_ABI = 0x33
"""EI_OSABI up to CUDA 12: the capability is the lowest byte of e_flags. Later it is the second lowest."""
_SIZED = 4
_REGISTERS, _FRAME_SIZE = 0x2F, 0x11
_PARAMETER, _THREADS = 0x17, 0x10
_GLOBAL_MEMORY = 4
_TEXT = ".text."


@dataclass(frozen=True, kw_only=True)
class Cubin(CodeObject):
    """A cubin with one kernel. `capability` is 90 for sm_90. Registers and `frame_bytes` (local memory) are
    per thread.

    `names` are those of all symbols, functions of the driver such as vprintf included.
    """

    capability: int
    registers: int
    frame_bytes: int
    static_shared_bytes: int
    names: frozenset[str]


def is_cubin(data: bytes) -> bool:
    """Whether the bytes begin as a cubin does."""
    return data[:6] == b"\x7fELF\x02\x01" and data[18:20] == struct.pack("<H", MACHINE)


def read_cubin(data: bytes) -> Cubin:
    """Parse a cubin. Raises CodeObjectError for anything else, and for several kernels."""
    if not is_cubin(data) or len(data) < 64:
        raise CodeObjectError("not a cubin: no 64-bit little-endian ELF file for CUDA")
    elf = read_elf(data)
    kernels = [section.name for section in elf.sections if section.name.startswith(_TEXT)]
    if len(kernels) != 1:
        raise CodeObjectError(f"{len(kernels)} kernels in the cubin")
    symbol = kernels[0].removeprefix(_TEXT)
    own, every = _attributes(elf, f".nv.info.{symbol}"), _attributes(elf, ".nv.info")
    strings = elf.section(".strtab").data
    try:
        return Cubin(
            symbol=symbol,
            capability=_capability(data),
            arguments=_arguments(own.get(_PARAMETER, [])),
            threads=math.prod(struct.unpack("<III", own[_THREADS][0])),
            registers=_largest(every, _REGISTERS),
            frame_bytes=_largest(every, _FRAME_SIZE),
            static_shared_bytes=sum(s.size for s in elf.sections if s.name == f".nv.shared.{symbol}"),
            names=frozenset(name.decode("latin-1") for name in strings.split(b"\0") if name),
        )
    except (struct.error, KeyError, IndexError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error


def _capability(data: bytes) -> int:
    (flags,) = struct.unpack_from("<I", data, 48)
    return int(flags & 0xFF if data[7] == _OLD_ABI else flags >> 8 & 0xFF)


def _attributes(elf: ElfFile, name: str) -> dict[int, list[bytes]]:
    """Values of sized attributes by number. Raises CodeObjectError."""
    found: dict[int, list[bytes]] = {}
    data, at = elf.section(name).data, 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if at + size > len(data):
                raise CodeObjectError("truncated or damaged: an attribute ends behind its section")
            found.setdefault(number, []).append(data[at : at + size])
            at += size
    return found


def _arguments(entries: list[bytes]) -> tuple[KernelArgument, ...]:
    """Parameters by number: u32 index, u16 number, u16 offset, u32 of which bits 8 to 11 are what it points
    to, 18 to 31 its size."""
    fields = sorted(struct.unpack("<IHHI", entry)[1:] for entry in entries)
    if [number for number, _, _ in fields] != list(range(len(fields))):
        raise CodeObjectError(f"parameters {[number for number, _, _ in fields]}")
    return tuple(
        KernelArgument(
            offset=offset,
            size=word >> 18,
            kind="global_buffer" if word >> 8 & 15 == _GLOBAL_MEMORY else "by_value",
        )
        for _, offset, word in fields
    )


def _largest(every: dict[int, list[bytes]], number: int) -> int:
    """The largest value of an attribute that functions have: u32 symbol, u32 value."""
    return int(max((struct.unpack("<II", entry)[1] for entry in every.get(number, [])), default=0))
