"""Single-bit flips in the machine code of an attention image: `python -m tests.campaigns.bit_flips`.

Each flip is tried twice: with the check that the text is the image's, which must refuse it, and without,
decoded from the altered bytes by llvm-objdump 22 and executed on the image's verification calls. Results and
what they mean: docs/verification.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotforge.errors import DecodeError, UnsupportedError
from tests.campaigns.subjects import (
    Call,
    Outcome,
    Subject,
    calls_of,
    execute,
    print_results,
    subjects,
    try_calls,
)
from tests.support.disassembly import disagreements, disassemble, require_round_trip
from vgpu.code_object import read_elf
from vgpu.emulator.decoded import Line, Listing, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.program import Program, Step

IMAGE = "flash.attn_fwd:gfx908:dtype=fp16,dropout=false,mask=window,width=64:1"
SCHEDULES = (None, 0x5EED)
_FIRST = frozenset({"gfx906", "gfx1030"})
"""Archs whose image with hints is the first: calls of few queries have none of their own."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One flipped bit and what became of it. `bit` counts from the first bit of .text; `executed`: the
    unaltered image reaches the instruction that the bit belongs to.

    `kind`: refused (by the decoder), fault, wrong, within (the bound, with other bits) or, with outputs that
    are the same to the last bit: same (the bit means nothing, the instruction is the same), equal (another
    instruction that leaves the same in every register on every call), unused (other values that no output
    depends on), identical (never executed).
    """

    bit: int
    address: int
    before: str
    after: str
    kind: str
    detail: str
    executed: bool
    refused_by_assembly: bool
    ratio: float = 0.0
    growth: float = 0.0
    checked: str = ""


class Campaign:
    """One image, ready to be tried."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._program = program = subject.load(subject.image.binary)
        self._kernel = program.listing.kernel
        self._original = disassemble(subject.image.binary, self._kernel, subject.arch)
        assert disagreements(program.listing, self._original) == []
        self._calls, self._executed = calls_of(subject, program, SCHEDULES)
        text = read_elf(subject.image.binary).section(".text")
        self._start = text.offset

    @property
    def calls(self) -> Sequence[Call]:
        return self._calls

    def try_bit(self, bit: int) -> Flip:
        """Flip a bit of .text, alone."""
        hsaco = bytearray(self.subject.image.binary)
        hsaco[self._start + bit // 8] ^= 1 << bit % 8
        before = _line_at(self._original, bit // 8)
        found, after, checked = self._outcome(bytes(hsaco), before)
        return Flip(
            bit=bit, address=before.address, before=before.text, after=after, kind=found.kind,
            detail=found.detail,
            executed=before.address in self._executed, refused_by_assembly=self._refused(bytes(hsaco)),
            ratio=found.ratio,
            growth=found.growth, checked=checked,
        )  # fmt: skip

    def _same_results(self, altered: Program, address: int, lines: Sequence[Line]) -> bool:
        """Whether both programs leave the same in the registers that the lines at an address write, each
        time, waves in turn."""
        written = [operand for line in lines for operand in _results(line)]
        digests = []
        for program in (self._program, altered):
            digest = hashlib.sha256()

            def trace(step: Step, digest: Any = digest) -> None:
                if step.line.address == address:
                    digest.update(_values(step.wave, written))

            for call in self._calls:
                if call.schedule is None:
                    execute(program, self.subject, call, trace=trace)
            digests.append(digest.digest())
        return digests[0] == digests[1]

    def _refused(self, hsaco: bytes) -> bool:
        try:
            self.subject.load(hsaco)
        except DecodeError as error:
            return "is not the image" in error.what
        return False

    def _outcome(self, hsaco: bytes, before: Line) -> tuple[Outcome, str, str]:
        """What became of altered bytes, the instruction after the change, and what the checks make of it."""
        after = ""
        try:
            listing = disassemble(hsaco, self._kernel, self.subject.arch)
            after = _line_at(listing, before.address).text
            require_round_trip(hsaco, listing)
            _refuse_real_addresses(listing)
            program = self.subject.altered(listing)
        except (DecodeError, UnsupportedError) as error:
            return Outcome(kind="refused", runs=0, detail=error.what), after, ""
        found = try_calls(program, self.subject, self._calls)
        assert disagreements(self._original, listing) != [], before
        if found.kind in {"fault", "wrong"} or before.address not in self._executed:
            return found, after, ""
        checked = try_calls(program, self.subject, self._calls, checks=True)
        if found.kind == "identical":
            lines = (before, _line_at(listing, before.address))
            same = self._same_results(program, before.address, lines)
            found = replace(found, kind="equal" if same else "unused")
        return found, after, checked.detail if checked.kind == "fault" else ""


def _line_at(listing: Listing, byte: int) -> Line:
    return next(line for line in listing.lines if line.address <= byte < line.next_address)


def _results(line: Line) -> tuple[Operand, ...]:
    """The registers that an instruction writes; some sources may be among them."""
    entry = INSTRUCTIONS.get(line.name)
    masks = entry is not None and entry.type_of("D") is not None and entry.type_of("SD") is not None
    return line.operands[: 2 if masks else 1]


def _values(wave: Any, written: Sequence[Operand]) -> bytes:
    """Contents of registers, and of VCC, EXEC and SCC, which instructions write without naming them."""
    parts = [wave.s[106:108], wave.s[126:128], wave.scc & 1]
    for operand in written:
        file = {"vector": wave.v, "scalar": wave.s}.get(operand.space, ())
        parts += [
            bytes(row) if operand.space == "vector" else row
            for row in file[operand.index : operand.index + operand.words]
        ]
    return repr(parts).encode()


def _refuse_real_addresses(listing: Listing) -> None:
    """A program that is decoded from altered bytes has no known address."""
    for line in listing.lines:
        if line.name == "s_getpc_b64":
            raise DecodeError(f"byte {line.address:#x}: {line.text}: real addresses are not modelled")


_campaign: list[Campaign] = []


def _begin(image: str, folder: str) -> None:
    arch = image.split(":")[1]
    (subject,) = subjects(arch, image.__eq__, Path(folder))
    _campaign.append(Campaign(subject))


def _try(bit: int) -> Flip:
    return _campaign[0].try_bit(bit)


def image_of(arch: str) -> str:
    """The label of an arch's image of the forward with hints."""
    label = IMAGE.replace("gfx908", arch)
    return label.removesuffix("1") + "0" if arch in _FIRST else label


def flips(image: str, folder: Path, *, seed: int, count: int, jobs: int) -> Iterator[Flip]:
    """Try `count` different bits, drawn by `seed`, in that many processes."""
    arch = image.split(":")[1]
    (subject,) = subjects(arch, image.__eq__, folder)
    size = (
        8 * subject.load(subject.image.binary).listing.lines[-1].next_address
    )  # s_code_end behind it is never executed
    drawn = random.Random(seed).sample(range(size), count)
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(image, str(folder))) as pool:
        yield from pool.map(_try, drawn)


def main() -> int:
    """Run the campaign and report it."""
    parser = argparse.ArgumentParser(description="Single-bit flips in an attention image")
    parser.add_argument("--image", default=IMAGE, help="label of an image of the quick profile")
    parser.add_argument("--seed", type=int, default=908)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every flip here")
    flags = parser.parse_args()
    folder = Path(os.environ.get("AOTFORGE_CACHE", ".aotforge/cache"))
    done = list(flips(flags.image, folder, seed=flags.seed, count=flags.count, jobs=flags.jobs))
    print_results(flags, done, report(done))
    return 0


def report(done: Sequence[Flip]) -> str:
    """What became of the flips, as text."""
    kinds = Counter((flip.kind, "executed" if flip.executed else "not executed") for flip in done)
    lines = [
        f"{len(done)} flips, {sum(flip.refused_by_assembly for flip in done)} refused by the assembly check"
    ]
    lines += [f"{count:5} {kind}, {where}" for (kind, where), count in sorted(kinds.items())]
    for flip in done:
        if flip.kind in {"within", "equal", "unused"}:
            lines.append(
                f"{flip.kind}: bit {flip.bit}, byte {flip.address:#x}: {flip.before} -> {flip.after}"
                f" ({flip.detail or 'no difference'}; {flip.ratio:.3f} of the bound, "
                f"{flip.growth:.3f} times the error;"
                f" checks: {flip.checked or 'nothing'})"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
