"""What the emulator knows of chips and of a kernel's text, as text: `list` and `show` of the command line."""

from __future__ import annotations

from collections import Counter

from aotforge.virtual_gpu.emulator.assembly import instruction_addresses
from aotforge.virtual_gpu.emulator.classes import instruction_class, instruction_mix
from aotforge.virtual_gpu.emulator.debugger.locations import is_debug_label
from aotforge.virtual_gpu.emulator.debugger.source import SourceLine, source_lines
from aotforge.virtual_gpu.emulator.decoded import Line
from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS
from aotforge.virtual_gpu.emulator.listing import parse_listing
from aotforge.virtual_gpu.emulator.targets import EmulatedTarget, emulated_targets


def chips_text() -> str:
    """A line per chip: lanes of a wave, accumulator registers, instructions whose meaning is known there."""
    lines = [f"{'chip':10} {'lanes':>5}  {'accumulators':12}  instructions"]
    for chip in emulated_targets().values():
        lines.append(f"{chip.arch:10} {chip.lanes:5}  {chip.accumulators:12}  {instruction_count(chip)}")
    return "\n".join(lines)


def instruction_count(chip: EmulatedTarget) -> int:
    """Entries of the instruction table that hold on a chip. The table goes by meaning: a chip may lack some of them, and its
    assembler then refuses them."""
    return sum(not entry.archs or chip.arch.startswith(entry.archs) for entry in INSTRUCTIONS.values())


def listing_lines(text: str, lines_from: str | None = None) -> list[str]:
    """A kernel's text as it is decoded: byte address, line, class and text; labels and source lines between, counts by class at the end.

    Raises DecodeError, ToolchainError.
    """
    listing = parse_listing(text)
    addresses = instruction_addresses(text, listing.kernel, listing.arch)
    source = source_lines(text, listing, lines_from=lines_from)
    labels: dict[int, list[str]] = {}
    for name, index in listing.labels.items():
        if not is_debug_label(name):
            labels.setdefault(index, []).append(name)
    shown = [f"{listing.kernel} for {listing.arch}: {len(listing.lines)} instructions, {addresses[-1]} bytes"]
    before: SourceLine | None = None
    for index, line in enumerate(listing.lines):
        shown += [f"{name}:" for name in labels.get(index, ())]
        here = source.get(line.number)
        if here is not None and here != before:
            shown.append(f"  ; {here}")
        before = here or before
        kind = instruction_class(line.name).value
        known = "" if _known(line, listing.arch) else "  ; NOT KNOWN to the emulator on this chip"
        shown.append(
            f"  {addresses[index]:#07x} {line.number:6}  {kind:13}  {' '.join(line.text.split())}{known}"
        )
    mix = instruction_mix(Counter(line.name for line in listing.lines))
    shown += ["", *(f"{count:8} {kind.label}" for kind, count in mix.items() if count)]
    return shown


def _known(line: Line, arch: str) -> bool:
    entry = INSTRUCTIONS.get(line.name)
    known = entry is not None and (not entry.archs or arch.startswith(entry.archs))
    return known and (line.partner is None or _known(line.partner, arch))
