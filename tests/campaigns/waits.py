"""Every wait of the attention kernels removed, and every counter in it weakened by one: `python -m
tests.campaigns.waits`.

An altered kernel is executed on the image's verification calls with the emulator's checks on, until they stop
it. One that they do not stop is replayed on the same calls by a second model (replay.py): it has to agree
that no instruction touches what is outstanding, and that no wave reaches a barrier with LDS operations
outstanding. Then the alteration is redundant on these calls; otherwise it was missed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aotforge.errors import ExecutionError
from tests.campaigns.replay import Replay, allowed
from tests.campaigns.subjects import (
    Call,
    Subject,
    calls_of,
    command,
    execute,
    labelled,
    of_each,
    print_results,
)
from vgpu.emulator.decoded import Checks, Line, Listing
from vgpu.emulator.program import Program

CHECKS = Checks(uninitialised=False, barriers=False)
"""Checks that find a missing wait: pending registers, and LDS accesses that continue after a barrier."""
_NAMED = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_SINGLE = re.compile(r"(s_waitcnt_vscnt null, |s_wait_(?:load|store|ds|km)cnt )(\w+)")
_DOUBLE = re.compile(r"(s_wait_(?:load|store)cnt_dscnt )(\w+)")


@dataclass(frozen=True, kw_only=True)
class Alteration:
    """One wait altered. `text` replaces it. `kind`: caught, redundant (on every call, by the second model),
    unreached (no call executes it) or missed."""

    label: str
    address: int
    before: str
    text: str
    kind: str
    detail: str


def alterations(line: Line) -> Iterator[Line]:
    """A wait that does nothing; then with one more operation allowed to be outstanding, for each of its
    counters."""
    yield replace(line, name="s_nop", text="s_nop 0")
    for found in _NAMED.finditer(line.text):
        weaker = f"{found[1]}({int(found[2]) + 1})"
        yield replace(line, text=line.text[: found.start()] + weaker + line.text[found.end() :])
    for pattern, units in ((_SINGLE, (1,)), (_DOUBLE, (1 << 8, 1))):
        if split := pattern.match(line.text):
            yield from (replace(line, text=f"{split[1]}{int(split[2], 0) + unit:#x}") for unit in units)


def altered_listings(listing: Listing) -> Iterator[tuple[int, Line, Listing]]:
    """Every alteration of every wait: its place, the new line, the complete listing."""
    for index, line in enumerate(listing.lines):
        if allowed(line):
            for other in alterations(line):
                lines = (*listing.lines[:index], other, *listing.lines[index + 1 :])
                yield index, other, replace(listing, lines=lines)


def try_alteration(program: Program, subject: Subject, calls: Sequence[Call]) -> tuple[str, str]:
    """Kind and detail."""
    for call in calls:
        try:
            execute(program, subject, call, checks=CHECKS)
        except ExecutionError as error:
            return "caught", error.what
    for call in calls:
        replay = Replay(generation=program.target.generation)
        execute(program, subject, call, trace=replay.step)
        if replay.violations:
            return "missed", replay.violations[0]
    return "redundant", ""


def alter_each(subject: Subject, *, every: int = 1) -> list[Alteration]:
    """Every alteration of an image, or every n-th."""
    program = subject.load(subject.image.binary)
    calls, executed = calls_of(subject, program, (None,))
    calls.sort(key=lambda call: call.limit)  # short ones first
    found = []
    for number, (index, line, listing) in enumerate(altered_listings(program.listing)):
        if number % every:
            continue
        before = program.listing.lines[index]
        if line.address in executed:
            kind, detail = try_alteration(subject.altered(listing), subject, calls)
        else:
            kind, detail = "unreached", ""
        found.append(
            Alteration(
                label=subject.label, address=line.address, before=before.text, text=line.text, kind=kind,
                detail=detail
            )
        )  # fmt: skip
    return found


def main() -> int:
    """Run the campaign and report it; 1 when one was missed."""
    flags = command("Every wait of the attention kernels removed and weakened in turn").parse_args()
    wanted = labelled(flags.kernels, flags.match)
    every = of_each(alter_each, flags.arch, wanted, flags.folder, flags.jobs)
    done = [one for found in every for one in found]
    print_results(flags, done, report(done))
    return int(any(one.kind == "missed" for one in done))


def report(done: Sequence[Alteration]) -> str:
    """What became of the waits, as text."""
    lines = [f"{len(done)} alterations, {sum(one.kind == 'caught' for one in done)} caught"]
    kinds = Counter((one.label.split(":")[0], one.kind) for one in done)
    lines += [f"{count:6} {kernel} {kind}" for (kernel, kind), count in sorted(kinds.items())]
    lines += [
        f"missed: {one.label} byte {one.address:#x}, {one.before} -> {one.text}: {one.detail}"
        for one in done
        if one.kind == "missed"
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
