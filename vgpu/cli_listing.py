"""Output of the emulator's command line: archs, a kernel's decoded text, executed instructions."""

from collections import Counter
from typing import Any

from vgpu.emulator.assembly import instruction_addresses
from vgpu.emulator.classes import instruction_class, instruction_mix
from vgpu.emulator.debugger.locations import is_debug_label
from vgpu.emulator.debugger.source import SourceLine, source_lines
from vgpu.emulator.decoded import Line, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.launch import Step
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.targets import emulated_targets


def arch_lines() -> list[str]:
    """A line per arch: lanes of a wave, accumulators, entries of the table (an arch's assembler may refuse
    some)."""
    lines = [f"{'arch':10} {'lanes':>5}  {'accumulators':12}  instructions"]
    for target in emulated_targets().values():
        count = sum(not one.archs or target.arch.startswith(one.archs) for one in INSTRUCTIONS.values())
        lines.append(f"{target.arch:10} {target.lanes:5}  {target.accumulators:12}  {count}")
    return lines


def listing_lines(text: str, lines_from: str | None = None) -> list[str]:
    """A kernel's decoded text with addresses, classes, labels and source lines; counts by class at the
    end."""
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
        known = "" if _known(line, listing.arch) else f"  ; NOT KNOWN to the emulator for {listing.arch}"
        text = " ".join(line.text.split())
        shown.append(f"  {addresses[index]:#07x} {line.number:6}  {kind:13}  {text}{known}")
    mix = instruction_mix(Counter(line.name for line in listing.lines))
    return [*shown, "", *(f"{count:8} {kind.label}" for kind, count in mix.items() if count)]


def _known(line: Line, arch: str) -> bool:
    entry = INSTRUCTIONS.get(line.name)
    known = entry is not None and (not entry.archs or arch.startswith(entry.archs))
    return known and (line.partner is None or _known(line.partner, arch))


def trace_text(step: Step, lane: int) -> str:
    """One executed instruction: wave, byte address, text, new values of its first operand and EXEC."""
    wave = step.wave
    exec_ = int(wave.s[126]) | int(wave.s[127]) << 32
    values = [_value(wave, operand, lane) for operand in step.line.operands[:1]]
    result = "".join(f"  {name}" for name in values if name)
    state = f"exec={exec_:x} scc={wave.scc}"
    return f"wave {wave.number} {step.line.address:#06x}  {step.line.text}  ;{result} {state}"


def _value(wave: Any, operand: Operand, lane: int) -> str:
    registers = range(operand.index, operand.index + operand.words)
    if operand.space == "scalar":
        words = [int(wave.s[i]) for i in registers]
    elif operand.space == "vector":
        words = [int(wave.v[i][lane]) for i in registers]
    else:
        return ""
    return f"{operand.text}={' '.join(f'{word:08x}' for word in words)}"
