"""Source lines of instructions from `.file` and `.loc`, and locations as the user writes them.

A text that was compiled without line numbers can be given another one that has them: the instructions must be
the same.

Forms: `0x4c` (byte address), `62` (line of the assembly text), `.LBB0_2` (label), `forward.py:61` (source).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from vgpu.emulator.decoded import Line, Listing
from vgpu.emulator.listing import instruction_lines
from vgpu.emulator.program import Program
from vgpu.errors import DecodeError, UnknownNameError, UnsupportedError, suggest

_SOURCE = re.compile(r"(.+):(\d+)")
_CALL = re.compile(r"([^\s:]+):(\d+):\d+")
_CONDITION = re.compile(r"wave\s+\d+|group\s+\d+(,\d+){0,2}|hit\s+\d+|count\s+\d+")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of the source, its folder as the compiler saw it; `callers` of its function, inner first."""

    folder: str
    file: str
    line: int
    callers: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_lines(text: str, listing: Listing, *, lines_from: str | None = None) -> Mapping[int, SourceLine]:
    """Source lines by a line's number in `text`; `lines_from`: a text of the same kernel that has them.
    Raises DecodeError when its instructions are others."""
    if lines_from is None:
        return _locations(text, listing.kernel)
    ours, theirs = _instructions(text, listing.kernel), _instructions(lines_from, listing.kernel)
    for (number, own), (other, its) in zip(ours, theirs, strict=False):
        if own != its:
            raise DecodeError(
                f"the text with line numbers is another kernel: its line {other} is {its}, line {number} "
                f"here is {own}",
                hint="compile both from the same source with the same options",
            )
    if len(ours) != len(theirs):
        raise DecodeError(f"the text with line numbers has {len(theirs)} instructions instead of {len(ours)}")
    found = _locations(lines_from, listing.kernel)
    pairs = zip(ours, theirs, strict=True)
    return {number: found[other] for (number, _), (other, _) in pairs if other in found}


def _instructions(text: str, kernel: str) -> list[tuple[int, str]]:
    lines = instruction_lines(text, kernel)
    return [(number, " ".join(line.split())) for number, line in lines if not line.endswith(":")]


def source_files(text: str) -> dict[str, tuple[str, str]]:
    """Folder and name of files by their number."""
    found = (m for line in text.splitlines() if (m := _FILE.match(line)))
    return {m[1]: (m[2], m[3]) if m[3] else ("", m[2]) for m in found}


def _locations(text: str, kernel: str) -> dict[int, SourceLine]:
    """By line number; line 0 of a `.loc` means that an instruction belongs to no line."""
    raw, files = text.splitlines(), source_files(text)
    found: dict[int, SourceLine] = {}
    current: SourceLine | None = None
    inside = dict(instruction_lines(text, kernel))
    for number, line in enumerate(raw, 1):
        if m := _LOCATION.match(line):
            folder, file = files.get(m[1], ("", f"file {m[1]}"))
            callers = tuple(_CALL.findall(line.partition("@[")[2]))
            found_line = SourceLine(folder=folder, file=file, line=int(m[2]), callers=callers)
            current = found_line if found_line.line else None
        elif number in inside and not inside[number].endswith(":") and current is not None:
            found[number] = current
    return found


def is_debug_label(name: str) -> bool:
    """Whether the compiler made a label for line tables only."""
    return name.startswith((".Ltmp", ".Lfunc_"))


@dataclass(frozen=True, kw_only=True)
class Breakpoint:
    """Stops before `indices`, in `wave` and `group` (None: any), `count` times (0: always) from `hit` on."""

    text: str = ""
    indices: tuple[int, ...] = ()
    wave: int | None = None
    group: tuple[int, int, int] | None = None
    hit: int = 1
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class DebugInfo:
    """A program with the source lines of its text's lines. It is the SourceMap of fault reports."""

    program: Program
    source: Mapping[int, SourceLine]

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Indices at which an instruction begins: a dual-issue pair is several lines with one address."""
        lines = self.program.lines
        return tuple(i for i, line in enumerate(lines) if i == 0 or line.address != lines[i - 1].address)

    @cached_property
    def index_at(self) -> Mapping[int, int]:
        """Byte address to the index of the instruction that begins there."""
        return {self.program.lines[i].address: i for i in self.firsts}

    @property
    def labels(self) -> Mapping[int, Sequence[str]]:
        """Byte address to the labels there, without those that only debug information uses."""
        found: dict[int, list[str]] = {}
        listing = self.program.listing
        for name, index in listing.labels.items():
            if not is_debug_label(name) and index < len(listing.lines):
                found.setdefault(listing.lines[index].address, []).append(name)
        return found

    def at(self, address: int) -> str | None:
        """The source line of the instruction at a byte."""
        index = self.index_at.get(address)
        return None if index is None else self.source_of(self.program.lines[index]) or None

    def source_of(self, line: Line) -> str:
        """`file:line`, or ''."""
        return str(self.source.get(line.number, ""))


def parse_breakpoint(text: str, info: DebugInfo, default: Breakpoint | None = None) -> Breakpoint:
    """`PLACE [wave N] [group X,Y,Z] [hit N] [count N]`. Raises UnknownNameError, UnsupportedError."""
    location, _, rest = text.strip().partition(" ")
    words = rest.split()
    fields: dict[str, Any] = {}
    for pair in (" ".join(words[i : i + 2]) for i in range(0, len(words), 2)):
        if not _CONDITION.fullmatch(pair):
            raise UnsupportedError(
                f"{pair!r} is not a valid condition of a breakpoint",
                hint="PLACE [wave N] [group X,Y,Z] [hit N] [count N]",
            )
        name, value = pair.split()
        fields[name] = parse_axes(value, "workgroup") if name == "group" else int(value)
    indices = tuple(resolve_location(location, info))
    return replace(default or Breakpoint(), text=location, indices=indices, **fields)


def parse_axes(text: str, what: str, default: int = 0) -> tuple[int, int, int]:
    """`X`, `X,Y` or `X,Y,Z`; axes that are missing have `default`. Raises UnsupportedError."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdigit() for part in parts):
        raise UnsupportedError(f"{text!r} is not a valid {what}", hint="X, X,Y or X,Y,Z")
    x, y, z = [*map(int, parts), default, default][:3]
    return x, y, z


def resolve_location(text: str, info: DebugInfo) -> Sequence[int]:
    """Indices of `Program.lines`, at least one. Raises UnknownNameError."""
    labels = info.program.listing.labels
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        return _at_address(text, info)
    if text.isdigit():
        return _at_line(int(text), info)
    if text in labels:
        return [info.index_at[info.program.listing.lines[labels[text]].address]]
    if m := _SOURCE.fullmatch(text):
        return _at_source(m[1], int(m[2]), info)
    known = [*labels, *{source.file for source in info.source.values()}]
    raise UnknownNameError(
        f"unknown location: {text}",
        cause="a location is a line of the assembly text, a byte address (0x..), a label, or FILE.py:LINE",
        hint=suggest(text, known),
    )


def _at_line(number: int, info: DebugInfo) -> list[int]:
    """The first instruction on a line of the text or after it."""
    lines = info.program.lines
    following = [i for i in info.firsts if lines[i].number >= number]
    if not following or number < lines[0].number:
        raise UnknownNameError(
            f"no instruction on line {number} or after it",
            hint=f"the kernel is on lines {lines[0].number} to {lines[-1].number}",
        )
    return following[:1]


def _at_address(text: str, info: DebugInfo) -> list[int]:
    address = int(text, 16)
    if address in info.index_at:
        return [info.index_at[address]]
    before = max((known for known in info.index_at if known < address), default=0)
    hint = f"the one before begins at {before:#x}"
    raise UnknownNameError(f"no instruction begins at byte {text}", hint=hint)


def _at_source(file: str, number: int, info: DebugInfo) -> list[int]:
    """The first instruction of each run of them that belongs to a source line."""
    if not info.source:
        raise UnknownNameError(
            f"unknown location: {file}:{number}",
            cause="the assembly text has no line numbers",
            hint="compile without TRITON_DISABLE_LINE_INFO, or give such a text with --lines",
        )
    own = {text_line for text_line, s in info.source.items() if s.line == number and _same_file(s, file)}
    inside = [info.program.lines[i].number in own for i in info.firsts]
    pairs = zip(info.firsts, inside, [False, *inside], strict=False)
    runs = [index for index, now, before in pairs if now and not before]
    if runs:
        return runs
    sources = info.source.values()
    near = sorted({s.line for s in sources if _same_file(s, file)}, key=lambda line: abs(line - number))[:4]
    nearest = f"the nearest lines with code: {', '.join(map(str, sorted(near)))}"
    files = f"the kernel comes from {', '.join(sorted({s.file for s in sources}))}"
    raise UnknownNameError(f"no instruction comes from {file}:{number}", hint=nearest if near else files)


def _same_file(source: SourceLine, file: str) -> bool:
    return f"{source.folder}/{source.file}".endswith(f"/{file}") or source.file == file
