"""The text is the image: it is assembled again, and the machine code compared byte for byte.

A copy of the text gets a label before each instruction and a section that lists where the labels are; labels add no code. So one
run of the assembler (Triton's own LLVM) gives both the proof and every instruction's address.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aotforge.errors import DecodeError, ToolchainError
from aotforge.formats.code_object import CodeObjectError
from aotforge.formats.elf import read_elf
from aotforge.virtual_gpu.emulator.listing import instruction_lines

_SECTION = ".aotforge_addresses"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Addresses, from the kernel's first byte, of its instructions in text order, then of the first byte after them."""

    addresses: tuple[int, ...]


def prove(text: str, kernel: str, arch: str, hsaco: bytes) -> Proof:
    """Assemble the text and compare. Raises DecodeError when the code differs, ToolchainError without Triton."""
    try:
        assembled = read_elf(assemble(_instrumented(text, kernel), arch))
        made, shipped = assembled.section(".text").data, read_elf(hsaco).section(".text").data
        addresses = assembled.section(_SECTION).data
    except CodeObjectError as error:
        raise DecodeError(f"the image of {kernel} cannot be read: {error}") from error
    if made != shipped:
        at = next(
            (i for i, (a, b) in enumerate(zip(made, shipped, strict=False)) if a != b),
            min(len(made), len(shipped)),
        )
        raise DecodeError(
            f"the assembly text of {kernel} is not the image: machine code differs from byte {at:#x} on",
            cause="the text belongs to another build of this kernel, or the image was altered",
            hint="take text and image from the same compilation",
        )
    return _addresses(addresses)


def locate(text: str, kernel: str, arch: str) -> Proof:
    """Addresses of a text that is not compared with any image. Raises DecodeError, ToolchainError."""
    return _addresses(read_elf(assemble(_instrumented(text, kernel), arch)).section(_SECTION).data)


def _addresses(section: bytes) -> Proof:
    return Proof(addresses=struct.unpack(f"<{len(section) // 4}I", section))


def assemble(text: str, arch: str) -> bytes:
    """An object file, by Triton's assembler. Raises DecodeError when it refuses the text, ToolchainError without Triton."""
    try:
        from triton._C.libtriton import llvm  # noqa: PLC0415 - decoding works without a compiler until here
        from triton.backends.amd.compiler import assemble_amdgcn  # noqa: PLC0415
    except ImportError as error:
        raise ToolchainError(
            "Triton is needed to prove that an assembly text is its image",
            cause=str(error),
            hint="install requirements/build.txt",
        ) from error
    llvm.init_targets()
    try:
        return bytes(assemble_amdgcn(text, arch, ""))
    except RuntimeError as error:
        raise DecodeError(f"the assembler refuses the text for {arch}: {error}") from error


def _instrumented(text: str, kernel: str) -> str:
    numbers = [number for number, content in instruction_lines(text, kernel) if not content.endswith(":")]
    lines = text.splitlines()
    for count, number in enumerate(numbers):
        lines[number - 1] = f".Laotforge{count}:\n{lines[number - 1]}"
    lines[numbers[-1] - 1] += f"\n.Laotforge{len(numbers)}:"
    table = "\n".join(f"\t.long .Laotforge{count}-{kernel}" for count in range(len(numbers) + 1))
    return "\n".join(lines) + f'\n\t.section {_SECTION},"",@progbits\n{table}\n'
