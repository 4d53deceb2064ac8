"""Every barrier of the attention kernels removed in turn: `python -m tests.campaigns.barriers --arch gfx908`.

A kernel without one of its barriers is executed on the image's verification calls, waves in turn and in seeded random orders, until something
shows. Results: docs/virtual-gpu-faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aotforge.emulator.values import Listing
from tests.campaigns.subjects import Subject, calls_of, subjects, try_calls

BARRIERS = frozenset({"s_barrier", "s_barrier_wait"})
KERNELS = ("attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq")
SCHEDULES: tuple[int | None, ...] = (None, 0x5EED, 1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """One barrier removed. `waves` of a workgroup; `executed`: some call reaches the barrier. `kind` as in subjects.Outcome:
    identical and within are survivors. `runs` launches until it was caught.
    """

    label: str
    address: int
    waves: int
    executed: bool
    kind: str
    detail: str
    runs: int

    @property
    def caught(self) -> bool:
        return self.kind in {"fault", "wrong"}


def without_barrier(listing: Listing, index: int) -> Listing:
    """The listing with instructions that do nothing in place of a barrier: on gfx12 the wait and the last signal before it."""
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
    program = subject.load(subject.image.hsaco)
    calls, executed = calls_of(subject, program, SCHEDULES)
    calls.sort(key=lambda call: call.schedule is None)  # random orders find more, so they go first
    found = []
    for index, line in enumerate(program.listing.lines):
        if line.name in BARRIERS:
            altered = subject.altered(without_barrier(program.listing, index))
            outcome = try_calls(altered, subject, calls)
            found.append(
                Removal(
                    label=subject.label, address=line.address, waves=-(-program.threads // program.chip.lanes),
                    executed=line.address in executed, kind=outcome.kind, detail=outcome.detail, runs=outcome.runs,
                )
            )  # fmt: skip
    return found


def _one(arguments: tuple[str, str, str]) -> list[Removal]:
    arch, label, folder = arguments
    (subject,) = subjects(arch, label.__eq__, Path(folder))
    return remove_each(subject)


def removals(arch: str, kernels: Sequence[str], folder: Path, *, jobs: int) -> Iterator[Removal]:
    """Every barrier of every image of some kernels in a chip's `quick` profile, in that many processes."""
    wanted = subjects(arch, lambda label: label.split(":")[0].split(".")[1] in kernels, folder)
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_one, [(arch, subject.label, str(folder)) for subject in wanted]):
            yield from found


def main() -> int:
    """Run the campaign and report it."""
    parser = argparse.ArgumentParser(description="Every barrier of the attention kernels removed in turn")
    parser.add_argument("--arch", default="gfx908")
    parser.add_argument("--kernels", nargs="+", default=KERNELS, choices=KERNELS)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every removal here")
    flags = parser.parse_args()
    folder = Path(os.environ.get("AOTFORGE_CACHE", ".aotforge/cache"))
    done = list(removals(flags.arch, flags.kernels, folder, jobs=flags.jobs))
    if flags.json:
        flags.json.write_text(json.dumps([asdict(removal) for removal in done], indent=1) + "\n")
    sys.stdout.write(report(done))
    return 0


def report(done: Sequence[Removal]) -> str:
    """What became of the barriers, as text."""
    lines = [f"{len(done)} barriers, {sum(r.caught for r in done)} caught"]
    kinds = Counter(
        (r.label.split(":")[0], r.kind, "executed" if r.executed else "not executed") for r in done
    )
    lines += [f"{count:5} {' '.join(kind)}" for kind, count in sorted(kinds.items())]
    lines += [
        f"survived: {r.label} byte {r.address:#x}, {r.waves} waves, {'executed' if r.executed else 'not executed'}: {r.kind}"
        for r in done
        if not r.caught
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
