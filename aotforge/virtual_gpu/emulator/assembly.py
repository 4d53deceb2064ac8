"""Round-trip check: a text, assembled again, must have the image's machine code, byte for byte.

A copy of the text gets a label before each instruction and a section that lists their addresses; labels add no code. One run of
the assembler (Triton's own LLVM) thus gives both the check and every instruction's address.
"""

import struct

from aotforge.errors import DecodeError, ToolchainError
from aotforge.formats.code_object import CodeObjectError
from aotforge.formats.elf import read_elf
from aotforge.virtual_gpu.emulator.listing import instruction_lines

_SECTION = ".aotforge_addresses"


def verify_assembly(text: str, kernel: str, arch: str, hsaco: bytes) -> tuple[int, ...]:
    """Check that a text is the image's; returns what `instruction_addresses` returns.

    Raises DecodeError when the code differs, ToolchainError without Triton.
    """
    assembled = assemble(_instrumented(text, kernel), arch)
    try:
        made, shipped = (read_elf(data).section(".text").data for data in (assembled, hsaco))
    except CodeObjectError as error:
        raise DecodeError(f"the image of {kernel} cannot be read: {error}") from error
    if made != shipped:
        pairs = enumerate(zip(made, shipped, strict=False))
        first = next((i for i, (a, b) in pairs if a != b), min(len(made), len(shipped)))
        raise DecodeError(
            f"the assembly text of {kernel} is not the image's: machine code differs from byte {first:#x} on",
            cause="the text belongs to another build of this kernel, or the image was altered",
            hint="take text and image from the same compilation",
        )
    return _addresses(assembled)


def instruction_addresses(text: str, kernel: str, arch: str) -> tuple[int, ...]:
    """Addresses, from the kernel's first byte, of a text's instructions in order, then of the first byte after them.

    The text is not compared with any image. Raises DecodeError, ToolchainError.
    """
    return _addresses(assemble(_instrumented(text, kernel), arch))


def _addresses(assembled: bytes) -> tuple[int, ...]:
    section = read_elf(assembled).section(_SECTION).data
    return struct.unpack(f"<{len(section) // 4}I", section)


def assemble(text: str, arch: str) -> bytes:
    """An object file, by Triton's assembler. Raises DecodeError when it refuses the text, ToolchainError without Triton."""
    try:
        from triton._C.libtriton import llvm  # noqa: PLC0415 - decoding works without a compiler until here
        from triton.backends.amd.compiler import assemble_amdgcn  # noqa: PLC0415 - triton: 0.3 s
    except ImportError as error:
        raise ToolchainError(
            "Triton is needed to check that an assembly text is its image's",
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
