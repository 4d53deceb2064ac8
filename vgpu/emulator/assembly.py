"""Round-trip check: a text, assembled again, must have the image's machine code, byte for byte.

A copy of the text gets labels around each instruction and a section that lists their addresses and those of
the text's own labels; labels add no code. One run of the assembler (Triton's own LLVM) thus gives both the
check and every address. A kernel may call functions of its image, in any order of text and image.
"""

import itertools
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from vgpu.code_object import CodeObjectError, read_elf
from vgpu.emulator.decoded import Line, Listing
from vgpu.emulator.listing import LABEL, functions, instruction_lines
from vgpu.errors import DecodeError, ToolchainError

_SECTION = ".aotforge_addresses"
_BEGIN, _END = ".Laotforge{}", ".Laotforge{}e"
_DIRECTIVE = re.compile(
    r"\.(?:amdgcn_target|amdhsa_\w+|end_amdhsa_kernel|amdgpu_lds|section|type|size|globl|weak|protected"
    r"|hidden|file|loc"
    r"|cfi_\w+|ident|addrsig|addrsig_sym|ascii|asciz|string|byte|short|long|quad|[248]byte|uleb128|sleb128)"
)
_PADDING = re.compile(
    r"\.p2alignl? +1?\d(?:,.*)?|\.(?:zero|skip|space) +\d{1,6}|\.fill +\d{1,6}, *[1248](?:,.*)?"
)
_SET = re.compile(r"\.set +[\w.$]+\.[\w.$]+, *[\w.$ ,+()]+")
"""Of counts that compilers write: `.set kernel.num_vgpr, max(23, .Lcalled.num_vgpr)`. Others could name the
location or registers."""
_INSTRUCTION = re.compile(r"[a-z]\w*(?! *:[^:])(?: [^=]*)?")
"""With `=` it would be an assignment."""
_HALF = re.compile(r"\bv\d+\.[lh]\b")
_METADATA = re.compile(r"(?:- +)*(?:'?[\w.]+'?:(?: .*)?|-(?: +[^.].*)?|---|\.\.\.)")
_METADATA_BEGIN, _METADATA_END = ".amdgpu_metadata", ".end_amdgpu_metadata"
_NOP = b"\x00\x00\x80\xbf"
"""s_nop 0, with which assemblers fill to an alignment."""
_LAST = {"s_endpgm", "s_branch", "s_setpc_b64"}
"""Instructions that what is behind them does not follow."""
_RETURNED_TO = {"s_getpc_b64", "s_swappc_b64", "s_call_b64"}
_RELATIVE = {"s_add_u32", "s_addc_u32", "s_add_co_u32", "s_add_co_ci_u32"}
"""Behind s_getpc_b64, with constants of the linker in the word after their encoding."""
_LITERAL = 4


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where instructions begin and end and labels are, from the kernel's first byte, `kernel` of `memory`."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    labels: Mapping[str, int]
    memory: bytes
    kernel: int

    def between(self, end: int, start: int) -> bytes:
        """The bytes from one place to another."""
        return self.memory[self.kernel + end : self.kernel + start]


def verify_assembly(text: str, kernel: str, arch: str, hsaco: bytes) -> Places:
    """The places of a text's code. Raises DecodeError unless it is the image's, ToolchainError."""
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
            f"the assembly text of {kernel} is not the image's: machine code or constants differ from byte "
            f"{first:#x} on",
            cause="the text belongs to another build of this kernel, or the image was altered",
            hint="take text and image from the same compilation",
        )
    return _places(assembled, text, kernel)


def instruction_addresses(text: str, kernel: str, arch: str) -> tuple[int, ...]:
    """Addresses of a text's instructions in order, then the end. Raises DecodeError, ToolchainError."""
    places = _places(_placed(text, kernel, arch), text, kernel)
    return (*places.starts, places.ends[-1])


def _placed(text: str, kernel: str, arch: str) -> bytes:
    """The image of a text with the section of addresses."""
    return link(assemble(_instrumented(text, kernel), arch))


def _places(assembled: bytes, text: str, kernel: str) -> Places:
    """The section's numbers count from the beginning of their functions."""
    elf = read_elf(assembled)
    section = elf.section(_SECTION).data
    marks = _marks(text, kernel)
    names = list(_listed(marks))
    if len(section) != 4 * len(names):
        raise DecodeError(f"the assembly text of {kernel} has a section {_SECTION} of its own")
    start = elf.symbol(kernel).value
    values = {
        name: value + elf.symbol(owner).value - start
        for (name, owner), value in zip(names, struct.unpack(f"<{len(names)}I", section), strict=True)
    }
    count = sum(not label for *_, label in marks)
    return Places(
        starts=tuple(values[_BEGIN.format(i)] for i in range(count)),
        ends=tuple(values[_END.format(i)] for i in range(count)),
        labels={label: values[label] for *_, label in marks if label},
        memory=elf.memory,
        kernel=start,
    )


def place(listing: Listing, places: Places) -> Listing:
    """Instructions by address, and labels where one begins. Raises DecodeError for code between them."""
    starts, ends = places.starts, places.ends
    order = sorted(range(len(listing.lines)), key=starts.__getitem__)
    position = {old: new for new, old in enumerate(order)} | {len(order): len(order)}
    for old, after in itertools.pairwise(order):
        _check_gap(listing.lines[old], places.between(ends[old], starts[after]), starts[after] - ends[old])
    following = [*(starts[old] for old in order[1:]), ends[order[-1]]]
    lines = tuple(
        replace(listing.lines[old], address=starts[old], next_address=after)
        for old, after in zip(order, following, strict=True)
    )
    at_end = len(starts)  # a branch there is refused when it is bound
    labels = {
        name: position[at]
        for name, at in listing.labels.items()
        if at == at_end or places.labels[name] == starts[at]
    }
    return replace(listing, lines=lines, labels=labels)


def _check_gap(line: Line, gap: bytes, size: int) -> None:
    """Between an instruction and the next one. Raises DecodeError."""
    filled = gap == _NOP * (size // len(_NOP)) and line.name not in _RETURNED_TO
    if size < 0 or (size and line.name not in _LAST and not filled):
        raise DecodeError(
            f"{line.location}: {size} bytes behind it are no instruction of the text: {gap[:8].hex()}"
        )


def resolve(listing: Listing, memory: bytes, kernel: int) -> Listing:
    """Constants of the linker, from the loaded image; `kernel`: its place there. Raises DecodeError."""
    if not any(operand.symbol for line in listing.lines for operand in line.operands):
        return listing
    return replace(listing, lines=tuple(_resolved(line, memory, kernel) for line in listing.lines))


def _resolved(line: Line, memory: bytes, kernel: int) -> Line:
    at = kernel + line.address + _LITERAL
    if not any(operand.symbol for operand in line.operands):
        return line
    if line.name not in _RELATIVE:
        raise DecodeError(
            f"{line.location}: only {', '.join(sorted(_RELATIVE))} have constants of the linker"
        )
    if not 0 <= at <= len(memory) - 4:
        raise DecodeError(f"{line.location}: a constant of the linker outside of the image")
    (value,) = struct.unpack_from("<I", memory, at)
    return replace(
        line, operands=tuple(replace(one, integer=value) if one.symbol else one for one in line.operands)
    )


def check_text(text: str) -> None:
    """Raises DecodeError for lines that no compiler writes, such as directives that read files or repeat.
    Every line counts as the begin of a statement: no comment or string of several lines hides one."""
    metadata = False
    for line in text.splitlines():
        content = line.split(";")[0].split("//")[0].replace("\t", " ").strip()
        if content in {_METADATA_BEGIN, _METADATA_END}:
            metadata = content == _METADATA_BEGIN
            continue
        if not content:
            continue
        valid = _METADATA.fullmatch(content) if metadata else _is_written(content)
        quotes = re.sub(r"\\.", "", line).count('"') if '"' in line else 0
        if not valid or "/*" in line or quotes % 2:
            raise DecodeError(
                f"the text has a line that compilers do not write: {content[:80]}",
                cause="it was altered, or an assembler's directives were added to it",
                hint="pass what Triton calls asm['amdgcn'], unchanged",
            )


def _is_written(content: str) -> bool:
    """Whether compilers write a line outside of the metadata."""
    if _INSTRUCTION.fullmatch(content) or content == ".text":
        return True
    first = content.split(maxsplit=1)[0]
    complete = _PADDING.fullmatch(content) or _SET.fullmatch(content)
    return bool(complete or _DIRECTIVE.fullmatch(first) or LABEL.match(content))


def assemble(text: str, arch: str) -> bytes:
    """An object file, by Triton's assembler. Raises DecodeError, ToolchainError."""
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
        return bytes(assemble_amdgcn(text, arch, _features(text, arch)))
    except RuntimeError as error:
        raise DecodeError(f"the assembler refuses the text for {arch}: {error}") from error


def _features(text: str, arch: str) -> str:
    """Features that the assembler needs: older LLVMs write 16-bit operands as registers without a half."""
    halves = not arch.startswith(("gfx11", "gfx12")) or _HALF.search(text)
    return "" if halves else "-real-true16"


def link(objects: bytes) -> bytes:
    """An object file as a code object, by Triton's linker."""
    from triton._C.libtriton import amd  # noqa: PLC0415 - triton: 0.3 s

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.o", Path(folder) / "out.hsaco"
        source.write_bytes(objects)
        amd.link_hsaco(str(source), str(target))
        return target.read_bytes()


@lru_cache(maxsize=1)
def _marks(text: str, kernel: str) -> tuple[tuple[int, str, str], ...]:
    """Numbers of the lines of instructions and labels, their functions, and names of labels."""
    known, owner, marks = functions(text), kernel, []
    for number, content in instruction_lines(text, kernel):
        label = content[:-1] if content.endswith(":") else ""
        owner = label if label in known else owner
        marks.append((number, owner, label))
    return tuple(marks)


def _listed(marks: Iterable[tuple[int, str, str]]) -> Iterator[tuple[str, str]]:
    """Names of the section of addresses in order, each with its function."""
    count = 0
    for _, owner, label in marks:
        if label:
            yield label, owner
            continue
        yield _BEGIN.format(count), owner
        yield _END.format(count), owner
        count += 1


def _instrumented(text: str, kernel: str) -> str:
    marks = _marks(text, kernel)
    lines = text.splitlines()
    for count, number in enumerate(number for number, _, label in marks if not label):
        lines[number - 1] = f"{_BEGIN.format(count)}:\n{lines[number - 1]}\n{_END.format(count)}:"
    table = "\n".join(f"\t.long {name}-{owner}" for name, owner in _listed(marks))
    return "\n".join(lines) + f'\n\t.section {_SECTION},"",@progbits\n{table}\n'
