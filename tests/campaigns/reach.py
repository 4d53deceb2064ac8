"""Instructions of the attention images that no verification call executes: `python -m tests.campaigns.reach
--arch ARCH`.

A fault in such an instruction cannot be found. What remains are instructions that no call can reach (a
kernel's loop over zero heads), and those between two masks of which no lane of a wave is ever set.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from tests.campaigns.subjects import Subject, calls_of, command, labelled, of_each, print_results

_WORK = re.compile(r"global_|flat_|buffer_(load|store|atomic)|ds_|s_load|s_buffer|v_mfma|v_wmma|v_dot")


@dataclass(frozen=True, kw_only=True)
class Unreached:
    """One image. `work`: unreached accesses to memory and LDS, and products."""

    label: str
    instructions: int
    unreached: int
    work: tuple[str, ...]


def unreached_of(subject: Subject) -> Unreached:
    """What no call of the image's functionals executes, up to the kernel's last instruction."""
    program = subject.load(subject.image.binary)
    _, executed = calls_of(subject, program, (None,))
    lines = program.listing.lines
    last = max(number for number, line in enumerate(lines) if line.name == "s_endpgm")
    missing = [line for line in lines[:last] if line.address not in executed and line.name != "s_nop"]
    work = tuple(f"{line.address:#x} {line.text}" for line in missing if _WORK.match(line.text))
    return Unreached(label=subject.label, instructions=last + 1, unreached=len(missing), work=work)


def main() -> int:
    """1 when an access or a product is not reached. The dropout mask's results have no float64 reference."""
    flags = command("Instructions that no verification call executes").parse_args()
    wanted = labelled(flags.kernels, flags.match)
    done = list(of_each(unreached_of, flags.arch, wanted, flags.folder, flags.jobs))
    total, missing = sum(one.instructions for one in done), sum(one.unreached for one in done)
    work = [f"{one.label} {text}\n" for one in done for text in one.work]
    end = f"{total} instructions, {missing} not reached, {len(work)} of them work"
    print_results(flags, done, "".join(work) + f"{flags.arch}: {len(done)} images, {end}\n")
    return int(bool(work))


if __name__ == "__main__":
    sys.exit(main())
