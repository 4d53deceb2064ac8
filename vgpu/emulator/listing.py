"""Triton's assembly text to a `Listing`: one kernel's instructions, labels and descriptor fields.

The compiler's own printer made the text; `assembly` checks that it is the image's. Anything in it that is not
a known directive, a label or an instruction is an error with its line.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vgpu.emulator.decoded import Line, Listing, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.wave_ops import MESSAGES, UNPARSED
from vgpu.emulator.operands import integer, is_modifier, modifiers, operand
from vgpu.errors import DecodeError

LABEL = re.compile(r"([A-Za-z_.$][\w.$]*):$")
"""Numbers are local labels of the assembler, or displacements."""
_TARGET = re.compile(r'\s*\.amdgcn_target\s+"[^"]*-(gfx\w+?)(?::[^"]*)?"')
_FIELD = re.compile(r"\s*\.amdhsa_(\w+)\s+([0-9]\S*)$")
_ENCODING = re.compile(r"_(e32|e64_dpp|e64|sdwa|dpp|dpp8)$")
_IGNORED = re.compile(
    r"\s*\.(p2align|globl|protected|hidden|type|size|set|weak|file|loc|cfi_\w+|ident|text|section"
    r"|amdhsa_code_object_version|amdgcn_target)\b"
)
_WORD = re.compile(r"(?:[^\s\[(]|\[[^\]]*\]|\((?:[^()]|\([^()]*\))*\))+")
_COMMA = re.compile(r",(?![^(\[]*[)\]])")
_MNEMONIC = re.compile(r"(?:^\t|:: )([sv]_\w+|(?:ds|global|buffer|scratch|flat)_\w+)", re.MULTILINE)
_SECTION = re.compile(r"\s*\.(?:text|section\s+\"?([\w.$-]+).*)$")
_FUNCTION = re.compile(r"^[ \t]*\.type[ \t]+([\w.$]+),@function", re.MULTILINE)
_PADDING = re.compile(r"\s*\.(p2alignl\s+\d+|fill\s+\d+,\s*4),\s*(3212836864|3214868480)$")
"""`s_code_end` behind a function, for the instruction prefetcher."""
_BRANCH = re.compile(r"s_c?branch(_|$)|s_call_b64$")


def parse_listing(text: str) -> Listing:
    """Decode the text of one kernel. Raises DecodeError with the line."""
    arch = next((m[1] for line in text.splitlines() if (m := _TARGET.match(line))), None)
    names = re.findall(r"^[ \t]*\.amdhsa_kernel[ \t]+(\S+)", text, re.MULTILINE)
    if arch is None or len(names) != 1:
        raise DecodeError(
            f"not the assembly text of one AMDGPU kernel: {len(names)} kernels, arch {arch or 'not named'}",
            hint="pass what Triton calls asm['amdgcn'], unchanged",
        )
    kernel = names[0]
    lines: list[Line] = []
    labels: dict[str, int] = {}
    for number, content in instruction_lines(text, kernel):
        try:
            if label := LABEL.match(content):
                labels[label[1]] = len(lines)
            else:
                lines.append(parse_line(content, number=number))
        except DecodeError as error:
            text = f"line {number}: {content}: {error.what}"
            raise DecodeError(text, cause=error.cause, hint=error.hint) from error
    fields = {m[1]: integer(m[2]) for line in text.splitlines() if (m := _FIELD.match(line))}
    return Listing(kernel=kernel, arch=arch, lines=tuple(lines), labels=labels, fields=fields)


def instruction_lines(text: str, kernel: str) -> Iterator[tuple[int, str]]:
    """Number and text of labels and instructions of a kernel and its functions. Raises DecodeError."""
    code, complete, found = True, False, False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split(";")[0].split("//")[0].rstrip()
        if code and line[:1] == "\t" and line[1:2].isalpha():  # an instruction, as most lines are
            yield number, line[1:]
            continue
        if line.strip() == ".amdgpu_metadata":
            break
        if section := _SECTION.match(line):
            code = line.strip() == ".text" or (section[1] or "").startswith(".text")
            complete |= found and not code
        elif re.match(r"\s*\.amdhsa_kernel\b", line):
            code, complete = False, found
        if not code or not line or _IGNORED.match(line) or _PADDING.match(line):
            continue
        found |= line == f"{kernel}:"
        content = line.strip()
        if content.startswith(".") and not LABEL.match(content):
            raise DecodeError(f"line {number}: {content}: unknown directive among instructions")
        yield number, content
    if not complete:
        raise DecodeError(f"the text does not contain all of the kernel {kernel}")


def instruction_names(texts: Iterable[str]) -> frozenset[str]:
    """Names in the instruction table of all instructions of several kernels; faster than decoding them."""
    found: set[str] = set()
    for text in texts:
        found.update(_MNEMONIC.findall(text))
    names = {_ENCODING.sub("", name).replace("v_dual_", "v_") for name in found}
    return frozenset(names | {"v_mov_b32"}) & INSTRUCTIONS.keys()  # a move separates some dual-issue pairs


def functions(text: str) -> frozenset[str]:
    """Names of the functions that a text defines, its kernel included."""
    return frozenset(_FUNCTION.findall(text))


def parse_line(text: str, *, number: int = 0) -> Line:
    """Decode one instruction, or a dual-issue pair. Raises DecodeError."""
    first, *rest = [part.strip() for part in text.split("::")]
    if len(rest) > 1:
        raise DecodeError("more than two instructions in one")
    line = _single(first, number, text)
    return replace(line, partner=_single(rest[0], number, text)) if rest else line


def _single(text: str, number: int, all_text: str) -> Line:
    mnemonic, _, tail = text.replace("\t", " ").partition(" ")
    tail = tail.strip()
    suffix = _ENCODING.search(mnemonic)
    encoding = suffix[1] if suffix else ""
    name = mnemonic[: suffix.start()] if suffix else mnemonic
    if name.startswith("v_dual_"):
        name, encoding = name.replace("v_dual_", "v_"), "dual"
    if name in UNPARSED:  # counters and hints in notations of their own
        if name == "s_sendmsg" and tail not in MESSAGES:
            raise DecodeError(f"unknown message {tail}")
        return Line(number=number, text=all_text, name=name, encoding=encoding, operands=())
    # commas and spaces inside brackets and parentheses belong to what is before them
    words = _WORD.findall(tail)
    count = next((i for i, word in enumerate(words) if is_modifier(word)), len(words))
    operands_text = " ".join(words[:count])
    pieces = [piece.strip() for piece in _COMMA.split(operands_text)] if operands_text else []
    branch = _BRANCH.match(name)
    labels = pieces[-1:] if branch else []
    parsed = (
        *map(operand, pieces[: len(pieces) - len(labels)]),
        *(Operand(text=label, space="label") for label in labels),
    )
    return Line(
        number=number,
        text=all_text,
        name=name,
        encoding=encoding,
        operands=parsed,
        modifiers=modifiers(words[count:]),
    )
