"""Kernel argument segments: explicit arguments, and hidden ones by the geometry of a launch.

HIP writes hidden arguments itself, by the code object's metadata, whether the caller passes `kernelParams` or
`extra` (ROCclr, processing of hidden arguments at dispatch). Meanings: LLVM's "User Guide for AMDGPU
Backend", code object V5 metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vgpu.emulator.descriptor import ABSENT_POINTERS, ABSENT_TAG
from vgpu.errors import ExecutionError

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
