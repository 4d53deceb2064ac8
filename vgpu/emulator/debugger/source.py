"""Source lines of instructions from `.file` and `.loc` in the assembly text.

Format: LLVM's assembly (`.file number "folder" "name"`, `.loc number line column`). A text that was compiled
without line numbers can be given another one that was compiled with them: the instructions must be the same.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vgpu.emulator.decoded import Listing
from vgpu.emulator.listing import instruction_lines
from vgpu.errors import DecodeError

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of the kernel's source; `folder` as the compiler saw it."""

    folder: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_lines(text: str, listing: Listing, *, lines_from: str | None = None) -> Mapping[int, SourceLine]:
    """Source lines by the number of a line of `text`; empty without line numbers. `lines_from`: a text of the
    same kernel that has them. Raises DecodeError when its instructions are others."""
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


def _locations(text: str, kernel: str) -> dict[int, SourceLine]:
    """By line number; line 0 of a `.loc` means that an instruction belongs to no line."""
    raw = text.splitlines()
    files = {m[1]: (m[2], m[3]) if m[3] else ("", m[2]) for line in raw if (m := _FILE.match(line))}
    found: dict[int, SourceLine] = {}
    current: SourceLine | None = None
    inside = dict(instruction_lines(text, kernel))
    for number, line in enumerate(raw, 1):
        if m := _LOCATION.match(line):
            folder, file = files.get(m[1], ("", f"file {m[1]}"))
            current = SourceLine(folder=folder, file=file, line=int(m[2])) if int(m[2]) else None
        elif number in inside and not inside[number].endswith(":") and current is not None:
            found[number] = current
    return found
