"""Which instructions a place means: `0x4c` (byte address), `62` (line of the assembly text), `.LBB0_2` (label), `forward.py:61` (source)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.virtual_gpu.emulator.debugger.source import SourceLine
from aotforge.virtual_gpu.emulator.decoded import Line
from aotforge.virtual_gpu.emulator.program import Program

_SOURCE = re.compile(r"(.+):(\d+)")
_CONDITION = re.compile(r"wave\s+\d+|group\s+\d+(,\d+){0,2}|hit\s+\d+|count\s+\d+")


def is_debug_label(name: str) -> bool:
    """Whether the compiler made a label for line tables only."""
    return name.startswith((".Ltmp", ".Lfunc_"))


@dataclass(frozen=True, kw_only=True)
class Breakpoint:
    """A place with conditions. `indices` of `Program.lines`; `wave` and `group` None: any; it stops `count` times (0: always),
    from the `hit`-th time on that conditions hold.
    """

    text: str
    indices: tuple[int, ...]
    wave: int | None = None
    group: tuple[int, int, int] | None = None
    hit: int = 1
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Map:
    """A program with what places can be named by."""

    program: Program
    source: Mapping[int, SourceLine]

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Indices at which an instruction begins: a dual-issue pair is several lines with one address."""
        lines = self.program.lines
        return tuple(i for i, line in enumerate(lines) if i == 0 or line.address != lines[i - 1].address)

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
        """The source line of the instruction at a byte: what fault reports ask for."""
        lines = self.program.lines
        return next(
            (self.source_of(lines[i]) or None for i in self.firsts if lines[i].address == address), None
        )

    def source_of(self, line: Line) -> str:
        """`file:line`, or ''."""
        return str(self.source.get(line.number, ""))


def parse_breakpoint(text: str, where: Map, default: Breakpoint | None = None) -> Breakpoint:
    """`PLACE [wave N] [group X,Y,Z] [hit N] [count N]`; `default` has conditions that the text does not name.

    Raises UnknownNameError for a place that the kernel does not have, UnsupportedError for anything else in the text.
    """
    place, _, rest = text.strip().partition(" ")
    found = replace(
        default or Breakpoint(text="", indices=()), text=place, indices=tuple(resolve(place, where))
    )
    words = rest.split()
    pairs = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    for pair in pairs:
        if not _CONDITION.fullmatch(pair):
            raise UnsupportedError(
                f"{pair!r} is no condition of a breakpoint",
                hint="PLACE [wave N] [group X,Y,Z] [hit N] [count N]",
            )
        name, value = pair.split()
        fields: dict[str, Any] = {name: parse_group(value) if name == "group" else int(value)}
        found = replace(found, **fields)
    return found


def parse_group(text: str) -> tuple[int, int, int]:
    """`X`, `X,Y` or `X,Y,Z`. Raises UnsupportedError."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.isdigit() for part in parts):
        raise UnsupportedError(f"{text!r} is no workgroup", hint="X, X,Y or X,Y,Z")
    x, y, z = [*map(int, parts), 0, 0][:3]
    return x, y, z


def resolve(place: str, where: Map) -> Sequence[int]:
    """Indices of `Program.lines`, at least one. Raises UnknownNameError."""
    lines, labels = where.program.lines, where.program.listing.labels
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", place):
        return _at(place, int(place, 16), where)
    if place.isdigit():
        number = int(place)
        following = [i for i in where.firsts if lines[i].number >= number]
        if not following or number < lines[0].number:
            raise UnknownNameError(
                f"no instruction on line {place} or after it",
                hint=f"the kernel is on lines {lines[0].number} to {lines[-1].number}",
            )
        return following[:1]
    if place in labels:
        target = where.program.listing.lines[labels[place]]
        return [next(i for i in where.firsts if lines[i].address == target.address)]
    if m := _SOURCE.fullmatch(place):
        return _source(m[1], int(m[2]), where)
    known = [*labels, *{source.file for source in where.source.values()}]
    raise UnknownNameError(
        f"no such place: {place}",
        cause="a place is a line of the assembly text, a byte address (0x..), a label, or FILE.py:LINE",
        hint=suggest(place, known),
    )


def _at(place: str, address: int, where: Map) -> list[int]:
    lines = where.program.lines
    for i in where.firsts:
        if lines[i].address == address:
            return [i]
    before = max((lines[i].address for i in where.firsts if lines[i].address < address), default=0)
    raise UnknownNameError(
        f"no instruction begins at byte {place}", hint=f"the one before begins at {before:#x}"
    )


def _source(file: str, number: int, where: Map) -> list[int]:
    """Where code of a source line begins: each first instruction of a run of them."""
    if not where.source:
        raise UnknownNameError(
            f"no such place: {file}:{number}",
            cause="the assembly text has no line numbers",
            hint="compile without TRITON_DISABLE_LINE_INFO, or give such a text with --lines",
        )
    lines = where.program.lines
    runs, before = [], False
    for i in where.firsts:
        source = where.source.get(lines[i].number)
        inside = source is not None and source.line == number and _same_file(source, file)
        if inside and not before:
            runs.append(i)
        before = inside
    if not runs:
        near = sorted(
            {s.line for s in where.source.values() if _same_file(s, file)}, key=lambda n: abs(n - number)
        )[:4]
        files = sorted({s.file for s in where.source.values()})
        raise UnknownNameError(
            f"no instruction comes from {file}:{number}",
            hint=f"the nearest lines with code: {', '.join(map(str, sorted(near)))}"
            if near
            else f"the kernel comes from {', '.join(files)}",
        )
    return runs


def _same_file(source: SourceLine, file: str) -> bool:
    return f"{source.folder}/{source.file}".endswith(f"/{file}") or source.file == file
