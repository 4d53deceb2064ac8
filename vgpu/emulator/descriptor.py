"""Kernel descriptors: the registers of a wave when it starts.

Format: 64 bytes at symbol `<kernel>.kd` (LLVM's "User Guide for AMDGPU Backend", kernel descriptor; code
object V5).
"""

import struct
from dataclasses import dataclass

from vgpu.code_object import CodeObjectError
from vgpu.elf import ElfFile
from vgpu.errors import UnsupportedError

SCRATCH_TAG = 0x5C00_0000_0000
"""Base of the private segment's buffer resource, by which scratch is known: no buffer's address."""
ABSENT_TAG = 0x5A7E
"""Bits 48 to 63 of what the virtual GPU does not provide; bits 32 to 47 name it."""
ABSENT_POINTERS = {0xFFF1: "the dispatch packet", 0xFFF2: "the queue", 0xFFF4: "the dispatch id"}
"""Unused user SGPRs by bits 32 to 47 of their value; the last digit is their bit in the properties."""
_KERNARG_POINTER = 3
_ADD_TID = 1 << 23
_ROUND_NEAREST_KEEP_DENORMALS = 0xF0


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """A kernel descriptor. `preload`: count and first of the kernarg dwords in user SGPRs."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: tuple[int, int]

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        """Which of x, y, z are passed in SGPRs."""
        x, y, z = (bool(self.rsrc2 >> bit & 1) for bit in (7, 8, 9))
        return x, y, z

    @property
    def work_item_ids(self) -> int:
        """How many of x, y, z are passed in VGPRs, where each has a register of its own."""
        return min(self.rsrc2 >> 11 & 3, 2) + 1

    @property
    def scratch_enabled(self) -> bool:
        """The SGPR behind the workgroup ids is the wave's offset into scratch."""
        return bool(self.rsrc2 & 1)

    @property
    def user_sgpr_count(self) -> int:
        """How many user SGPRs the workgroup's ids follow; not all need have a value."""
        return self.rsrc2 >> 1 & 31

    def user_sgprs(self, kernarg: int, kernarg_data: bytes) -> list[int]:
        """Values of user SGPRs for a kernarg segment. Raises UnsupportedError for unknown inputs."""
        known = 0x1F | (1 << 10) | (1 << 11)
        if self.properties & 0x7F & ~known:
            raise UnsupportedError(
                f"the kernel needs user SGPRs (properties {self.properties:#x}) that the emulator does not "
                f"set up",
                cause="flat scratch or the size of the private segment",
            )
        values: list[int] = []
        if self.properties & 1:
            values += [SCRATCH_TAG & 0xFFFFFFFF, SCRATCH_TAG >> 32, 0xFFFFFFFF, _ADD_TID]
        pointers = {tag & 15: ABSENT_TAG << 48 | tag << 32 for tag in ABSENT_POINTERS} | {
            _KERNARG_POINTER: kernarg
        }
        for bit, pointer in sorted(pointers.items()):
            if self.properties >> bit & 1:
                values += [pointer & 0xFFFFFFFF, pointer >> 32]
        count, first = self.preload
        values += struct.unpack_from(f"<{count}I", kernarg_data, 4 * first)
        if len(values) > self.user_sgpr_count:
            raise UnsupportedError(
                f"the kernel has {self.user_sgpr_count} user SGPRs for {len(values)} values",
                cause="no compiler writes such a descriptor",
            )
        return values


def read_descriptor(elf: ElfFile, kernel: str) -> Descriptor:
    """The descriptor of a kernel. Raises CodeObjectError, UnsupportedError for other floating-point modes."""
    at = elf.symbol(f"{kernel}.kd").value
    data = elf.memory[at : at + 64]
    if len(data) < 64:
        raise CodeObjectError(f"the descriptor of {kernel} is truncated")
    lds, scratch, kernarg, _, entry = struct.unpack_from("<IIIIq", data, 0)
    rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
    mode = rsrc1 >> 12 & 0xFF | (rsrc1 >> 26 & 1) << 8
    if mode != _ROUND_NEAREST_KEEP_DENORMALS:
        raise UnsupportedError(
            f"{kernel} sets floating-point mode {mode:#x}; "
            f"the emulator rounds to nearest and keeps denormal numbers (0xf0)"
        )
    return Descriptor(
        lds_bytes=lds,
        scratch_bytes=scratch,
        kernarg_bytes=kernarg,
        entry=at + entry,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=rsrc3,
        properties=properties,
        preload=(preload & 0x7F, preload >> 7),
    )
