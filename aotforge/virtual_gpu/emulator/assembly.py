"""Round-trip check: a text, assembled again, must have the image's machine code, byte for byte.

A copy of the text gets a label before each instruction and a section that lists their addresses; labels add no code. One run of
the assembler (Triton's own LLVM) thus gives both the check and every instruction's address.
"""

import re
import struct
import tempfile
from pathlib import Path

from aotforge.errors import DecodeError, ToolchainError
from aotforge.formats.code_object import CodeObjectError
from aotforge.formats.elf import read_elf
from aotforge.virtual_gpu.emulator.listing import functions, instruction_lines

_SECTION = ".aotforge_addresses"
_PADDING_LIMIT = 1 << 20
"""Bytes that alignment and filling may add to a text's object."""

_DIRECTIVE = re.compile(
    r"\.(?:amdgcn_target|amdhsa_\w+|end_amdhsa_kernel|amdgpu_lds|text|section|type|size|set|globl|weak|protected|hidden|file|loc"
    r"|cfi_\w+|ident|addrsig|addrsig_sym|ascii|asciz|string|byte|short|long|quad|[248]byte|uleb128|sleb128)"
)
_PADDING = re.compile(
    r"(?:\.p2alignl? +(\d{1,2})(?:,.*)?|\.(?:zero|skip|space) +(\d{1,7})|\.fill +(\d{1,6}), *[1248](?:,.*)?)"
)
_LABEL = re.compile(r"[A-Za-z_.$][\w.$]*:")
_INSTRUCTION = re.compile(r"[a-z]\w*(?! *:[^:])(?: |$)")
_METADATA = re.compile(r"(?:- +)*(?:'?[\w.]+'?:(?: .*)?|-(?: +[^.].*)?|---|\.\.\.)")
_METADATA_BEGIN, _METADATA_END = ".amdgpu_metadata", ".end_amdgpu_metadata"


def verify_assembly(text: str, kernel: str, arch: str, hsaco: bytes) -> tuple[int, ...]:
    """Check that a text is the image's, in machine code, constants and descriptor; returns what `instruction_addresses` returns.

    Raises DecodeError when the code differs, ToolchainError without Triton.
    """
    assembled = _placed(text, kernel, arch)
    try:
        made, shipped = (
            b"".join(read_elf(data).section(name).data for name in (".text", ".rodata"))
            for data in (assembled, hsaco)
        )
    except CodeObjectError as error:
        raise DecodeError(f"the image of {kernel} cannot be read: {error}") from error
    if made != shipped:
        pairs = enumerate(zip(made, shipped, strict=False))
        first = next((i for i, (a, b) in pairs if a != b), min(len(made), len(shipped)))
        raise DecodeError(
            f"the assembly text of {kernel} is not the image's: machine code or constants differ from byte {first:#x} on",
            cause="the text belongs to another build of this kernel, or the image was altered",
            hint="take text and image from the same compilation",
        )
    return _addresses(assembled, text, kernel)


def instruction_addresses(text: str, kernel: str, arch: str) -> tuple[int, ...]:
    """Addresses, from the kernel's first byte, of a text's instructions in order, then of the first byte after them.

    The text is not compared with any image. Raises DecodeError, ToolchainError.
    """
    return _addresses(_placed(text, kernel, arch), text, kernel)


def _placed(text: str, kernel: str, arch: str) -> bytes:
    """The image of a text with the section of addresses."""
    return link(assemble(_instrumented(text, kernel), arch))


def _addresses(assembled: bytes, text: str, kernel: str) -> tuple[int, ...]:
    """The section's numbers count from the beginning of their functions."""
    elf = read_elf(assembled)
    section = elf.section(_SECTION).data
    owners = [name for _, name in _owners(text, kernel)]
    owners.append(owners[-1])
    if len(section) != 4 * len(owners):
        raise DecodeError(f"the assembly text of {kernel} has a section {_SECTION} of its own")
    start = elf.symbol(kernel).value
    values = struct.unpack(f"<{len(owners)}I", section)
    return tuple(value + elf.symbol(name).value - start for value, name in zip(values, owners, strict=True))


def check_text(text: str) -> None:
    """Raises DecodeError for a text that no compiler wrote: with directives that read files or repeat, or that pads without end.

    A release's texts may be another's: LLVM's assembler would include any file of this user and fill the memory. Every line is checked
    as if a statement began there, so no comment or string of several lines can hide one.
    """
    padding, metadata = 0, False
    for line in text.splitlines():
        content = line.split(";")[0].split("//")[0].replace("\t", " ").strip()
        if content in {_METADATA_BEGIN, _METADATA_END}:
            metadata = content == _METADATA_BEGIN
            continue
        if not content:
            continue
        first = content.split()[0]
        if metadata:
            valid = bool(_METADATA.fullmatch(content))
        elif found := _PADDING.fullmatch(content):
            align, count, repeat = (int(number or 0) for number in found.groups())
            padding += (1 << align if found[1] else 0) + count + 8 * repeat
            valid = padding <= _PADDING_LIMIT
        else:
            valid = bool(
                _DIRECTIVE.fullmatch(first) or _LABEL.fullmatch(content) or _INSTRUCTION.match(content)
            )
        if not valid or "/*" in line or re.sub(r"\\.", "", line).count('"') % 2:
            raise DecodeError(
                f"the text has a line that compilers do not write: {content[:80]}",
                cause="it was altered, or an assembler's directives were added to it",
                hint="pass what Triton calls asm['amdgcn'], unchanged",
            )


def assemble(text: str, arch: str) -> bytes:
    """An object file, by Triton's assembler. Raises DecodeError when the text is refused, ToolchainError without Triton."""
    check_text(text)
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


def link(objects: bytes) -> bytes:
    """An object file as a code object, by Triton's linker."""
    from triton._C.libtriton import amd  # noqa: PLC0415 - triton: 0.3 s

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.o", Path(folder) / "out.hsaco"
        source.write_bytes(objects)
        amd.link_hsaco(str(source), str(target))
        return target.read_bytes()


def _owners(text: str, kernel: str) -> list[tuple[int, str]]:
    """The line number of every instruction, and the function that it belongs to."""
    known, owner, found = functions(text), kernel, []
    for number, content in instruction_lines(text, kernel):
        if not content.endswith(":"):
            found.append((number, owner))
        elif content[:-1] in known:
            owner = content[:-1]
    return found


def _instrumented(text: str, kernel: str) -> str:
    owners = _owners(text, kernel)
    lines = text.splitlines()
    for count, (number, _) in enumerate(owners):
        lines[number - 1] = f".Laotforge{count}:\n{lines[number - 1]}"
    last, owner = owners[-1]
    lines[last - 1] += f"\n.Laotforge{len(owners)}:"
    names = [*(name for _, name in owners), owner]
    table = "\n".join(f"\t.long .Laotforge{count}-{name}" for count, name in enumerate(names))
    return "\n".join(lines) + f'\n\t.section {_SECTION},"",@progbits\n{table}\n'
