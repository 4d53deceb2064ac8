"""Every barrier of the attention kernels removed in turn: `python -m tests.campaigns.barriers --arch gfx908`.

A kernel without one of its barriers is executed on the image's verification calls, waves in turn and in
seeded random orders, until something shows. Results: docs/planted-faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.campaigns.subjects import Subject, calls_of, subjects, try_calls
from vgpu.emulator.decoded import Listing

BARRIERS = frozenset({"s_barrier", "s_barrier_wait"})
CAUGHT = frozenset({"fault", "wrong"})
KERNELS = ("attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq")
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


def _one(arguments: tuple[str, str, str]) -> list[Removal]:
    arch, label, folder = arguments
    (subject,) = subjects(arch, label.__eq__, Path(folder))
    return remove_each(subject)


def removals(
    arch: str, kernels: Sequence[str], folder: Path, *, jobs: int, match: str = ""
) -> Iterator[Removal]:
    """Every barrier of every image of some kernels of an arch's `quick` profile, in `jobs` processes.

    `match`: a text that the images' labels contain.
    """

    def chosen(label: str) -> bool:
        return label.split(":", maxsplit=1)[0].split(".")[1] in kernels and match in label

    wanted = subjects(arch, chosen, folder)
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_one, [(arch, subject.label, str(folder)) for subject in wanted]):
            yield from found


def main() -> int:
    """Run the campaign and report it."""
    parser = argparse.ArgumentParser(description="Every barrier of the attention kernels removed in turn")
    parser.add_argument("--arch", default="gfx908")
    parser.add_argument("--kernels", nargs="+", default=KERNELS, choices=KERNELS)
    parser.add_argument("--match", default="", help="only images whose labels contain this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every removal here")
    flags = parser.parse_args()
    folder = Path(os.environ.get("AOTFORGE_CACHE", ".aotforge/cache"))
    done = list(removals(flags.arch, flags.kernels, folder, jobs=flags.jobs, match=flags.match))
    if flags.json:
        flags.json.write_text(json.dumps([asdict(removal) for removal in done], indent=1) + "\n")
    sys.stdout.write(report(done))
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
