"""Every barrier of the attention kernels removed in turn: `python -m tests.campaigns.barriers --arch gfx908`.

A kernel without one of its barriers is executed on the image's verification calls, waves in turn and in
seeded random orders, until something shows. Results: docs/verification.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.campaigns.subjects import Subject, calls_of, command, labelled, of_each, print_results, try_calls
from vgpu.emulator.decoded import Listing

BARRIERS = frozenset({"s_barrier", "s_barrier_wait"})
CAUGHT = frozenset({"fault", "wrong"})
SCHEDULES: tuple[int | None, ...] = (None, 0x5EED, 1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """One barrier removed. `waves` of a workgroup; `executed`: some call reaches the barrier. `kind` as in
    subjects.Outcome: what the reference made of it after `runs` launches. `checked`: those that it let pass,
    once more with every check of the emulator."""

    label: str
    address: int
    waves: int
    executed: bool
    kind: str
    detail: str
    runs: int
    checked: str = ""

    @property
    def seen(self) -> bool:
        """By its effect on the results."""
        return self.kind in CAUGHT

    @property
    def caught(self) -> bool:
        """By its effect or by the checks."""
        return self.seen or self.checked in CAUGHT


def without_barrier(listing: Listing, index: int) -> Listing:
    """The listing with instructions that do nothing in place of a barrier: on gfx12 the wait and the last
    signal before it."""
    lines = list(listing.lines)
    assert lines[index].name in BARRIERS
    removed = [index]
    if lines[index].name == "s_barrier_wait":
        removed.append(max(i for i in range(index) if lines[i].name == "s_barrier_signal"))
    for i in removed:
        lines[i] = replace(lines[i], name="s_nop", operands=(), text=f"s_nop 0 ; was {lines[i].text}")
    return replace(listing, lines=tuple(lines))


def remove_each(subject: Subject) -> list[Removal]:
    """Every barrier of an image, one after another."""
    program = subject.load(subject.image.binary)
    calls, executed = calls_of(subject, program, SCHEDULES)
    calls.sort(key=lambda call: call.schedule is None)  # random orders find more, so they go first
    found = []
    for index, line in enumerate(program.listing.lines):
        if line.name in BARRIERS:
            altered = subject.altered(without_barrier(program.listing, index))
            outcome, checked = try_calls(altered, subject, calls), ""
            if outcome.kind not in CAUGHT:
                again = try_calls(altered, subject, calls, checks=True)
                outcome, checked = replace(outcome, detail=again.detail), again.kind
            found.append(
                Removal(
                    label=subject.label, address=line.address,
                    waves=-(-program.threads // program.target.lanes),
                    executed=line.address in executed, kind=outcome.kind, detail=outcome.detail,
                    runs=outcome.runs,
                    checked=checked,
                )
            )  # fmt: skip
    return found


def main() -> int:
    """Run the campaign and report it."""
    flags = command("Every barrier of the attention kernels removed in turn").parse_args()
    wanted = labelled(flags.kernels, flags.match)
    every = of_each(remove_each, flags.arch, wanted, flags.folder, flags.jobs)
    done = [one for found in every for one in found]
    print_results(flags, done, report(done))
    return 0


def report(done: Sequence[Removal]) -> str:
    """What became of the barriers, as text."""
    lines = [
        f"{len(done)} barriers, {sum(r.seen for r in done)} seen in the results, "
        f"{sum(r.caught for r in done)} with the checks"
    ]
    for kernel in dict.fromkeys(r.label.split(":")[0] for r in done):
        own = [r for r in done if r.label.startswith(f"{kernel}:")]
        lines.append(f"{kernel}: {len(own)}, {sum(r.seen for r in own)}, {sum(r.caught for r in own)}")
    lines += [
        f"{'checks only' if r.caught else 'survived'}: {r.label} byte {r.address:#x}, {r.waves} waves, "
        f"{'executed' if r.executed else 'not executed'}: {r.kind}, {r.checked} {r.detail}"
        for r in done
        if not r.seen
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
