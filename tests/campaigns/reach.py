"""Instructions of the attention images that no verification call executes: `python -m tests.campaigns.reach
--arch ARCH`.

A fault in such an instruction cannot be found. What remains are instructions that no call can reach (a
kernel's loop over zero heads), and those between two masks of which no lane of a wave is ever set.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.subjects import Subject, calls_of, subjects
from vgpu.emulator.decoded import Line

_WORK = re.compile(r"global_|flat_|buffer_(load|store|atomic)|ds_|s_load|s_buffer|v_mfma|v_wmma|v_dot")


@dataclass(frozen=True, kw_only=True)
class Unreached:
    """One image. `work`: unreached accesses to memory and LDS, and products."""

    label: str
    instructions: int
    unreached: tuple[Line, ...]

    @property
    def work(self) -> list[str]:
        return [f"{line.address:#x} {line.text}" for line in self.unreached if _WORK.match(line.text)]


def unreached_of(subject: Subject) -> Unreached:
    """What no call of the image's functionals executes, up to the kernel's last instruction."""
    program = subject.load(subject.image.binary)
    _, executed = calls_of(subject, program, (None,))
    lines = program.listing.lines
    last = max(number for number, line in enumerate(lines) if line.name == "s_endpgm")
    missing = [line for line in lines[:last] if line.address not in executed and line.name != "s_nop"]
    return Unreached(label=subject.label, instructions=last + 1, unreached=tuple(missing))


def _is_attention(label: str) -> bool:
    return label.startswith(("flash.attn_fwd", "flash.bwd"))


def _one(arguments: tuple[str, str, str]) -> Unreached:
    arch, label, folder = arguments
    (subject,) = subjects(arch, label.__eq__, Path(folder))
    return unreached_of(subject)


def images_of(arch: str, folder: Path, jobs: int) -> Iterator[Unreached]:
    """Every image of the `quick` profile but the dropout mask's, whose results have no float64 reference."""
    arguments = [(arch, subject.label, str(folder)) for subject in subjects(arch, _is_attention, folder)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_one, arguments)


def main() -> int:
    """1 when an access or a product is not reached."""
    parser = argparse.ArgumentParser(description="Instructions that no verification call executes")
    parser.add_argument("--arch", default="gfx908")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    flags = parser.parse_args()
    images = total = missing = work = 0
    for one in images_of(flags.arch, Path(os.environ.get("AOTFORGE_CACHE", ".aotforge/cache")), flags.jobs):
        images, total = images + 1, total + one.instructions
        missing, work = missing + len(one.unreached), work + len(one.work)
        for line in one.work:
            sys.stdout.write(f"{one.label} {line}\n")
    sys.stdout.write(
        f"{flags.arch}: {images} images, {total} instructions, {missing} not reached, {work} of them work\n"
    )
    return int(work > 0)


if __name__ == "__main__":
    sys.exit(main())
