"""`python -m aotforge.emulator run FILE.hsaco --asm FILE.s --grid 3 --arg in:f32:x.npy --arg out:f32:1024:y.npy --arg 1000`.

See docs/virtual-gpu.md. Prints what the kernel executed; exits with the error's code when it must not be executed or does what it must
not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from aotforge.emulator.command import Argument, parse_argument, trace_text
from aotforge.emulator.listing import parse_listing
from aotforge.emulator.program import DEFAULT_LIMIT, Emulator, LaunchReport, Step, Trace
from aotforge.errors import AotforgeError
from aotforge.interpret.memory import Memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    flags = _parser().parse_args(arguments)
    try:
        _run(flags)
    except AotforgeError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aotforge.emulator", description="A virtual AMD GPU")
    run = parser.add_subparsers(dest="command", required=True).add_parser(
        "run", help="execute one launch of a kernel"
    )
    run.add_argument("hsaco", type=Path, help="the code object")
    run.add_argument("--asm", type=Path, required=True, help="its assembly text, as Triton hands it out")
    run.add_argument("--arch", help="the chip (default: the one that the text names)")
    run.add_argument("--grid", default="1", help="workgroups per axis: X or X,Y or X,Y,Z")
    run.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="ARG",
        help="in the kernel's order: a number (1000, 0.5), in:FILE.npy, inout:FILE.npy:OUT.npy, out:TYPE:COUNT:OUT.npy, zero:TYPE:COUNT:OUT.npy",
    )
    run.add_argument("--lds", type=int, default=0, help="dynamic LDS in bytes (Triton's metadata.shared)")
    run.add_argument("--schedule", type=int, help="seed of a random wave schedule (default: waves in turn)")
    run.add_argument(
        "--seed", type=int, default=1, help="seed of the garbage that registers and memory start with"
    )
    run.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help="wave-instructions per workgroup")
    run.add_argument(
        "--trace",
        metavar="FILE",
        help="write every executed instruction and its result ('-': standard output)",
    )
    run.add_argument("--trace-lane", type=int, default=0, help="the lane whose registers the trace shows")
    return parser


def _run(flags: argparse.Namespace) -> None:
    asm = flags.asm.read_text()
    grid = (*[int(n) for n in flags.grid.split(",")], 1, 1)[:3]
    parsed = [parse_argument(text) for text in flags.arg]
    program = Emulator(flags.arch or parse_listing(asm).arch).load(flags.hsaco.read_bytes(), asm)
    memory = Memory({f"argument {i}": a.buffer for i, a in enumerate(parsed) if a.buffer is not None})
    with _tracer(flags.trace, flags.trace_lane) as trace:
        report = program.launch(
            (grid[0], grid[1], grid[2]),
            [a.value for a in parsed],
            memory,
            lds_bytes=flags.lds,
            schedule=flags.schedule,
            seed=flags.seed,
            limit=flags.limit,
            trace=trace,
        )
    _save(parsed)
    _print(report)


@contextmanager
def _tracer(file: str | None, lane: int) -> Iterator[Trace | None]:
    """What writes a trace to a file or to standard output (`-`), or None."""
    if file is None:
        yield None
    elif file == "-":
        yield _writer(sys.stdout, lane)
    else:
        with Path(file).open("w") as stream:
            yield _writer(stream, lane)


def _writer(stream: TextIO, lane: int) -> Trace:
    def trace(step: Step) -> None:
        stream.write(trace_text(step, lane) + "\n")

    return trace


def _save(arguments: Sequence[Argument]) -> None:
    for argument in arguments:
        if argument.output and argument.buffer is not None:
            np.save(argument.output, argument.buffer)


def _print(report: LaunchReport) -> None:
    rate = report.instructions / max(report.seconds, 1e-9) / 1e6
    lines = [
        f"{report.instructions} wave-instructions in {report.workgroups} workgroups, "
        f"{report.seconds:.3f} s on {report.threads} threads, {rate:.1f} M/s"
    ]
    lines += [f"{count:12} {name}" for name, count in report.counts.most_common()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
