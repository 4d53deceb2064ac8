"""Second decoder: machine code to a `Listing` through LLVM's llvm-objdump 22.

Images with a verified text need no disassembler. This decoder is for code without a text, altered on purpose
(docs/verification.md), and it checks the first one: `disagreements` compares the two, instruction by
instruction.
LLVM 22 is the first release that decodes all of gfx1100, gfx1201 and gfx950.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace

from aotforge.errors import DecodeError, ToolchainError
from vgpu.code_object import CodeObjectError, Symbol, read_elf
from vgpu.emulator.assembly import assemble
from vgpu.emulator.decoded import Line, Listing, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.wave_ops import NO_OPS
from vgpu.emulator.listing import parse_line

OBJDUMP = "llvm-objdump-22"
_LINE = re.compile(r"\t(?P<text>.*?)\s*// (?P<address>[0-9A-F]{12}): (?P<words>[0-9A-F]{8}(?: [0-9A-F]{8})*)")
_BRANCH = re.compile(r"s_c?branch(_|$)")
_LITERAL = re.compile(r"\blit\((-?\w+)\)")
"""A number in the instruction's literal that would fit in its operand."""
_TIMEOUT = 60
_TRUE16 = ("gfx11", "gfx12")
_SIMM16 = frozenset({"s_barrier_wait"})
"""Instructions whose 16-bit number Triton's assembler text has with a sign and LLVM's disassembler
without."""


def find_objdump() -> str | None:
    """The path of llvm-objdump 22, or None when it is not installed."""
    return shutil.which(OBJDUMP)


def disassemble(hsaco: bytes, kernel: str, arch: str, functions: Iterable[str] = ()) -> Listing:
    """Decode a kernel, and functions that it calls, from the bytes of its code object: from each symbol's
    first byte to its last.

    Labels are `@ADDRESS`; addresses count from the kernel's first byte. Raises DecodeError with the address
    of
    bytes that are not a known instruction; ToolchainError without llvm-objdump 22.
    """
    try:
        elf = read_elf(hsaco)
        symbols = sorted((elf.symbol(name) for name in {kernel, *functions}), key=lambda symbol: symbol.value)
    except CodeObjectError as error:
        raise DecodeError(f"the image of {kernel} cannot be read: {error}") from error
    text, base = _objdump(hsaco, arch), elf.symbol(kernel).value
    lines = [
        _moved(line, symbol.value - base)
        for symbol in symbols
        for line in parse_disassembly(text, symbol, arch).lines
    ]
    # padding between functions belongs to the instruction before it, as in the text
    ends = [*(line.address for line in lines[1:]), lines[-1].next_address]
    lines = [replace(line, next_address=end) for line, end in zip(lines, ends, strict=True)]
    return Listing(kernel=kernel, arch=arch, lines=tuple(lines), labels=_labels(lines), fields={})


def _moved(line: Line, distance: int) -> Line:
    """The line of a function, with addresses from the kernel's first byte."""
    operands = tuple(
        replace(o, text=f"@{int(o.text[1:], 0) + distance:#x}") if o.space == "label" else o
        for o in line.operands
    )
    return replace(
        line, address=line.address + distance, next_address=line.next_address + distance, operands=operands
    )


def parse_disassembly(text: str, symbol: Symbol, arch: str) -> Listing:
    """The output of llvm-objdump for one function. Raises DecodeError."""
    lines: list[Line] = []
    expected = 0
    for match in _LINE.finditer(text):
        address = int(match["address"], 16) - symbol.value
        if not 0 <= address < symbol.size:
            continue
        if address != expected:
            raise DecodeError(f"the disassembly of {symbol.name} has no instruction at byte {expected:#x}")
        expected = address + 4 * len(match["words"].split())
        if match["text"].startswith("."):  # `.long 0xffffffff`
            raise DecodeError(f"byte {address:#x}: {match['words']} is not an instruction of {arch}")
        try:
            line = parse_line(_LITERAL.sub(r"\1", match["text"]), number=len(lines) + 1)
        except DecodeError as error:
            raise DecodeError(f"byte {address:#x}: {match['text']}: {error.what}") from error
        lines.append(_placed(replace(line, text=match["text"]), address, expected))
    if not lines or expected != symbol.size:
        raise DecodeError(f"the disassembly of {symbol.name} ends at byte {expected:#x} of {symbol.size:#x}")
    return Listing(kernel=symbol.name, arch=arch, lines=tuple(lines), labels=_labels(lines), fields={})


def require_round_trip(hsaco: bytes, listing: Listing) -> None:
    """Assemble what `disassemble` read and compare the bytes.

    Bits that its text does not have (reserved fields, registers that are not aligned) would be ignored when
    it is executed.
    Raises DecodeError at the first instruction that has some, ToolchainError without Triton.
    """
    text = "\n".join(["\t.text", *(f"\t{line.text}" for line in listing.lines), ""])
    made = read_elf(assemble(text, listing.arch)).section(".text").data
    elf = read_elf(hsaco)
    start = elf.symbol(listing.kernel).value - elf.section(".text").address
    for line in listing.lines:
        shipped = elf.section(".text").data[start + line.address : start + line.next_address]
        if made[line.address : line.next_address] != shipped:
            raise DecodeError(
                f"byte {line.address:#x}: {line.text}: its bytes {shipped.hex()} have bits without a meaning",
                cause=f"the instruction as written is {made[line.address : line.next_address].hex()}",
            )


def disagreements(first: Listing, second: Listing) -> list[str]:
    """Differences between two decodings of the same code; empty when instructions, operands and modifiers are
    the same.

    These spellings count as the same: labels for addresses, `op_sel` that repeats the halves of
    16-bit registers (v1.h), the sign of 16-bit numbers in `s_barrier_wait`, `null` for an offset of 0 in
    gfx11's scalar loads,
    `s_nop 0` that the text has as alignment (`.p2align`), `lit(0x40)` for 0x40 or a symbol, and the encoding
    (`_e32`, `_e64`) and the
    arch's own name of an instruction where inline assembly leaves these to the assembler.
    """
    texts = []
    decoded = _without_padding(first, second)
    here, there = _targets(first), _targets(second)
    for line, other in zip(first.lines, decoded, strict=False):
        if _canonical(_encoded_as(line, other), here) != _canonical(other, there):
            texts.append(
                f"byte {line.address:#x}: {line.text.strip()} | byte {other.address:#x}: {other.text}"
            )
    if len(first.lines) != len(decoded):
        texts.append(f"{len(first.lines)} instructions | {len(decoded)} instructions")
    return texts


def _encoded_as(line: Line, other: Line) -> Line:
    """The line with the other's encoding if it names none, and with its name for the same operation: the
    assembler's choices."""
    if line.encoding or other.encoding not in {"e32", "e64"}:
        return line
    first, second = INSTRUCTIONS.get(line.name), INSTRUCTIONS.get(other.name)
    if first is None or second is None or replace(first, name=second.name) != second:
        return line
    return replace(line, name=other.name, encoding=other.encoding)


def _without_padding(first: Listing, second: Listing) -> tuple[Line, ...]:
    """The second decoding's lines; `s_nop 0` where the first has no instruction belongs to the line before,
    as in the text."""
    known = {line.address for line in first.lines}
    kept: list[Line] = []
    for line in second.lines:
        if kept and line.text == "s_nop 0" and line.address not in known:
            kept[-1] = replace(kept[-1], next_address=line.next_address)
        else:
            kept.append(line)
    return tuple(kept)


def _objdump(hsaco: bytes, arch: str) -> str:
    tool = find_objdump()
    if tool is None:
        raise ToolchainError(
            f"{OBJDUMP} is needed to decode machine code without its text",
            hint="install llvm-22 (on Debian 12 from its security updates)",
        )
    extra = ["--mattr=+real-true16"] if arch.startswith(_TRUE16) else []
    with tempfile.NamedTemporaryFile(suffix=".hsaco") as file:
        file.write(hsaco)
        file.flush()
        command = [tool, "-d", "-z", "-j", ".text", f"--mcpu={arch}", *extra, file.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"{OBJDUMP} did not run: {error}") from error
    if done.returncode:
        raise DecodeError(f"{OBJDUMP} refuses the image: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def _placed(line: Line, address: int, after: int) -> Line:
    """The line at its address; a branch gets its target as a label."""
    if not _BRANCH.match(line.name) or len(line.operands) != 1:
        return replace(line, address=address, next_address=after)
    # a signed 16-bit count of words from the next instruction, printed without sign
    words = line.operands[0].text
    if not words.isdigit():
        raise DecodeError(f"byte {address:#x}: {line.text}: the target is not a number")
    target = after + 4 * ((int(words) ^ 0x8000) - 0x8000)
    label = Operand(text=f"@{target:#x}", space="label")
    return replace(line, address=address, next_address=after, operands=(label,))


def _labels(lines: list[Line]) -> dict[str, int]:
    """Branch targets by label. Raises DecodeError for a branch into the middle of an instruction."""
    starts = {line.address: index for index, line in enumerate(lines)}
    labels = {}
    for line, operand in ((listed, operand) for listed in lines for operand in listed.operands):
        if operand.space == "label":
            target = int(operand.text[1:], 0)
            if target not in starts:
                where = f"byte {line.address:#x}: {line.text}"
                raise DecodeError(f"{where}: no instruction begins at the target, byte {target:#x}")
            labels[operand.text] = starts[target]
    return labels


def _targets(listing: Listing) -> dict[str, int]:
    """Addresses by label, which may be the end of the last instruction."""
    ends = [line.address for line in listing.lines] + [listing.lines[-1].next_address]
    return {label: ends[index] for label, index in listing.labels.items()}


def _canonical(line: Line, targets: Mapping[str, int]) -> Line:
    """The line without differences of spelling."""
    modifiers = dict(line.modifiers)
    if any(operand.half is not None for operand in line.operands):
        halves = [int(operand.half == 1) for operand in (*line.operands[1:], line.operands[0])]
        if modifiers.get("op_sel") == tuple(halves):
            del modifiers["op_sel"]
    return replace(
        line,
        number=0,
        text=" ".join(line.text.split()) if line.name in NO_OPS else "",
        operands=tuple(_same_spelling(operand, line.name, targets) for operand in line.operands),
        modifiers=modifiers,
        partner=_canonical(line.partner, targets) if line.partner else None,
    )


def _same_spelling(operand: Operand, name: str, targets: Mapping[str, int]) -> Operand:
    if operand.space == "label":
        return replace(operand, text="", integer=targets[operand.text])
    if name.startswith("s_load_") and operand.text == "null":
        return Operand(text="", space="constant", hexadecimal=True)
    if name in _SIMM16 and operand.space == "constant":
        return replace(operand, text="", integer=operand.integer & 0xFFFF, hexadecimal=True)
    return replace(operand, text="", symbol=False)
