"""Kernel descriptors, and argument segments with hidden arguments by the geometry of a launch.

HIP writes hidden arguments itself, by the code object's metadata, whether the caller passes `kernelParams` or
`extra` (ROCclr, processing of hidden arguments at dispatch). Formats and meanings: LLVM's "User Guide for
AMDGPU Backend", code object V5; a descriptor is 64 bytes at symbol `<kernel>.kd`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgpu.code_object import CodeObjectError, ElfFile
from vgpu.errors import ExecutionError, UnsupportedError

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


_GRID_DIMENSIONS = 3
"""HIP launches every grid with three dimensions."""
_AXES = "xyz"
_POINTER = "global_buffer"
HOST_BUFFER = "hidden_hostcall_buffer"
HIDDEN = (
    *(
        f"hidden_{what}_{axis}"
        for what in ("block_count", "group_size", "remainder", "global_offset")
        for axis in _AXES
    ),
    "hidden_grid_dims",
    "hidden_dynamic_lds_size",
    "hidden_none",
    HOST_BUFFER,
)
"""Hidden arguments with a value, in the order of `segment` and of ServeLaunch's in the virtual HIP."""
EXPLICIT, ABSENT = 0, len(HIDDEN) + 1
"""`KernelParameter.source` of explicit arguments, and of hidden ones without a value."""


@dataclass(frozen=True, kw_only=True)
class KernelParameter:
    """A parameter from the code object's metadata."""

    offset: int
    size: int
    kind: str

    @property
    def source(self) -> int:
        """Where its value comes from: EXPLICIT, 1 + the place in HIDDEN, or ABSENT."""
        if not self.kind.startswith("hidden_"):
            return EXPLICIT
        return HIDDEN.index(self.kind) + 1 if self.kind in HIDDEN else ABSENT


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Workgroups by axis, threads of one (along x), dynamic LDS in bytes, address of the buffer of host
    calls."""

    grid: tuple[int, int, int]
    threads: int
    lds_bytes: int
    host_buffer: int = 0


def segment(
    kernel: str,
    parameters: Sequence[KernelParameter],
    size: int,
    arguments: Sequence[int | float],
    geometry: Geometry,
    address: Callable[[int], int] = int,
) -> bytes:
    """The argument segment. Triton's two scratch pointers may be left out; `address` translates pointers."""
    explicit = [p for p in parameters if p.source == EXPLICIT]
    own = explicit[:-2] if all(p.kind == _POINTER for p in explicit[-2:]) else explicit
    missing = len(explicit) - len(arguments)
    if missing not in {0, 2} or any(p.kind != _POINTER for p in explicit[len(arguments) :]):
        raise ExecutionError(
            f"{kernel} takes {_counted(own)}, {len(arguments)} given",
            cause=f"they are {', '.join(f'{n}: {_described(p)}' for n, p in enumerate(own, 1))}",
            hint="pass the kernel's own arguments in its order; Triton's two scratch pointers may be omitted",
        )
    data = bytearray(size)
    given = dict(zip((p.offset for p in explicit), [*arguments, *[0] * missing], strict=True))
    grid, threads, lds = geometry.grid, geometry.threads, geometry.lds_bytes
    # workgroups, their sizes, remainders (every one is full) and offsets of the grid, as in HIDDEN
    known = (0, *grid, threads, 1, 1, *[0] * 6, _GRID_DIMENSIONS, lds, 0, geometry.host_buffer)
    for p in parameters:
        if p.source == ABSENT:
            packed = _absent(p)
        elif p.source == EXPLICIT:
            value = given[p.offset]
            packed = _pack(address(value) if p.kind == _POINTER and isinstance(value, int) else value, p)
        else:
            packed = known[p.source].to_bytes(p.size, "little")
        if p.offset + p.size > size:
            raise ExecutionError(f"{kernel}: the argument at byte {p.offset} is behind the segment's end")
        data[p.offset : p.offset + p.size] = packed
    return bytes(data)


def _counted(parameters: Sequence[KernelParameter]) -> str:
    return f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"


def _described(parameter: KernelParameter) -> str:
    return "a pointer" if parameter.kind == _POINTER else f"a number of {parameter.size} bytes"


def _absent(parameter: KernelParameter) -> bytes:
    """A value that faults as an address and names the argument's offset; 4 bytes are the high half of one."""
    high = ABSENT_TAG << 16 | parameter.offset
    return (high << 32 if parameter.size == 8 else high).to_bytes(parameter.size, "little")


def absent_arguments(parameters: Sequence[KernelParameter]) -> Mapping[int, str]:
    """Hidden arguments and user SGPRs that have no value, by bits 32 to 47 of the value that they get."""
    return {p.offset: p.kind for p in parameters if p.source == ABSENT} | ABSENT_POINTERS


def absent_argument(address: int, absent: Mapping[int, str]) -> str | None:
    """The absent argument that an address was made of."""
    return absent.get(address >> 32 & 0xFFFF) if address >> 48 == ABSENT_TAG else None


def _pack(value: int | float, parameter: KernelParameter) -> bytes:
    """A number in a parameter's bytes. Raises ExecutionError when it does not fit."""
    try:
        if isinstance(value, float):
            if parameter.kind == _POINTER:
                raise ExecutionError("a pointer argument cannot be a float")
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[parameter.size], value)
        return int(value).to_bytes(parameter.size, "little", signed=value < 0)
    except (OverflowError, KeyError) as error:
        raise ExecutionError(f"the argument {value} does not fit in {parameter.size} bytes") from error
