"""Program file: a bound program without pointers, which the compiled interpreter opens.

Layout: `ServeFile` (native/serve_abi.h), a `Launch` as template, the instructions, their effects, the rows of
constants, the kernarg parameters. Opening the file finds handlers by opcode and rows by number. It contains
the sizes of all structures, so that no other interpreter opens it.
"""

import ctypes
from ctypes import c_char, c_uint32, c_uint64
from itertools import accumulate

import numpy as np

from vgpu.emulator import native
from vgpu.emulator.descriptor import Descriptor
from vgpu.emulator.program import Program

_MAGIC = b"AOTSERV1"
_NONE = 0xFFFFFFFF
_KERNARG = 0x1234_5678_0000
_MARK = 0x7E570000
_PRELOADABLE = 64
_OFFSETS = ("launch_at", "program_at", "effects_at", "rows_at", "parameters_at", "image_at")


class ServeFile(ctypes.Structure):
    """The head of a program file; mirrors serve_abi.h."""

    _fields_ = [
        ("magic", c_char * 8),
        ("sizes", c_uint64 * 4),
        *((name, c_uint64) for name in ("bytes", *_OFFSETS, "image_bytes", "kernel_at")),
        *((name, c_uint32) for name in ("row_count", "parameter_count", "threads", "kernarg_bytes")),
        *((name, c_uint32) for name in ("fixed_lds", "effect_bytes")),
        *((name, c_uint32) for name in ("kernarg_sgpr", "preload_sgpr", "preload_count", "preload_first")),
        ("kernel", c_char * 256),
        ("arch", c_char * 32),
        ("digest", c_char * 72),
    ]


def program_file(program: Program, digest: str) -> bytes:
    """The file of a loaded program."""
    instructions, rows = _relocatable(program)
    registers = _user_registers(program.descriptor)
    launch = _template(program, registers["kernarg_sgpr"])
    parameters = np.array([(p.offset, p.size, p.source) for p in program.parameters], dtype="<u4").tobytes()
    effects = program.effects()
    image = program.image.tobytes()
    parts = [bytes(launch), instructions, bytes(effects), rows, parameters, image]
    sizes_of_parts = [_aligned(size) for size in (ctypes.sizeof(ServeFile), *map(len, parts))]
    offsets = list(accumulate(sizes_of_parts))
    lanes = program.target.lanes
    head = ServeFile(
        magic=_MAGIC,
        sizes=(c_uint64 * 4)(*native.sizes(lanes)),
        bytes=offsets[-1],
        row_count=len(rows) // (8 * lanes),
        parameter_count=len(program.parameters),
        image_bytes=len(image),
        kernel_at=program.kernel_at if image else 0,
        threads=program.threads,
        kernarg_bytes=program.descriptor.kernarg_bytes,
        fixed_lds=program.descriptor.lds_bytes,
        effect_bytes=ctypes.sizeof(native.Effects),
        kernel=program.listing.kernel.encode(),
        arch=program.target.arch.encode(),
        digest=digest.encode(),
        **dict(zip(_OFFSETS, offsets, strict=False)),
        **registers,
    )
    return b"".join(_padded(part) for part in (bytes(head), *parts))


def _relocatable(program: Program) -> tuple[bytes, bytes]:
    """Instructions whose row pointers are numbers from 1, and the rows."""
    lanes, numbers, rows = program.target.lanes, {0: 0}, []
    bound = program.instructions
    copied = type(bound).from_buffer_copy(bound)
    for one in copied:
        one.handler = None
        for operand in (one.d, one.sd, *one.s):
            address = operand.row or 0
            if address not in numbers:
                rows.append(ctypes.string_at(address, 8 * lanes))
                numbers[address] = len(rows)
            operand.row = numbers[address]
    return bytes(copied), b"".join(rows)


def _template(program: Program, kernarg_sgpr: int) -> native.Launch:
    """A launch of one workgroup without pointers and arguments: the same bytes in every process."""
    kernarg = np.zeros(max(program.descriptor.kernarg_bytes, 1), dtype=np.uint8)
    launch = program.template((1, 1, 1), kernarg, 0)
    launch.code_base = 0 if program.image.nbytes else launch.code_base  # serve.h sets it
    if kernarg_sgpr != _NONE:
        launch.user[kernarg_sgpr] = launch.user[kernarg_sgpr + 1] = 0
    return launch


def _user_registers(descriptor: Descriptor) -> dict[str, int]:
    """Registers of the segment's address and preloaded dwords, found by distinctive values."""
    marks = np.arange(_MARK, _MARK + _PRELOADABLE, dtype="<u4").tobytes()
    values = descriptor.user_sgprs(_KERNARG, marks)
    address = [_KERNARG & 0xFFFFFFFF, _KERNARG >> 32]
    kernarg = next((i for i in range(len(values) - 1) if values[i : i + 2] == address), _NONE)
    count, first = descriptor.preload
    preload = values.index(_MARK + first) if count else _NONE
    names = ("kernarg_sgpr", "preload_sgpr", "preload_count", "preload_first")
    return dict(zip(names, (kernarg, preload, count, first), strict=True))


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))
