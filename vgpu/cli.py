"""The command `vgpu`: virtual AMD GPUs.

`run` executes a launch and shows places of it, `debug` stops at its start, `show` lists a kernel's text,
`list` the archs, `env` builds the virtual HIP library and prints its variables. The exit code is the error's
when a kernel is refused or has a fault. See docs/virtual-gpu.md and docs/virtual-gpu-tools.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from vgpu.cache import default_cache
from vgpu.emulator.address_space import AddressSpace
from vgpu.emulator.assembly import instruction_addresses
from vgpu.emulator.classes import instruction_class, instruction_mix
from vgpu.emulator.debugger.locations import (
    Breakpoint,
    DebugInfo,
    SourceLine,
    is_debug_label,
    parse_axes,
    parse_breakpoint,
    source_lines,
)
from vgpu.emulator.debugger.shell import Session, Shell, parse_lanes
from vgpu.emulator.debugger.views import ViewContext, parse_views
from vgpu.emulator.decoded import Checks, Line, Operand
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.measure import Meter
from vgpu.emulator.program import DEFAULT_LIMIT, Emulator, LaunchReport, LaunchRequest, Program, Step, Trace
from vgpu.emulator.targets import emulated_targets, find_arch
from vgpu.errors import USAGE, UnknownNameError, UnsupportedError, UserError, printable, suggest
from vgpu.hip.build_hip import build_virtual_hip, environment, exports
from vgpu.memory import Memory

_TYPES: Mapping[str, Any] = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "bf16": np.uint16, "i8": np.int8,
        "u8": np.uint8,
    "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
"""Element types by Triton's names; bf16 is held as its bits."""
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)")
_INVALID = (MemoryError, OverflowError, EOFError)
"""What numpy raises besides ValueError."""

_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|\d+)")


class CostMeter(Protocol):
    """Measures a launch, by the hooks that it gets, and estimates its cost afterwards."""

    meter: Meter
    recorder: Any

    def lines(self, grid: tuple[int, int, int], lds_bytes: int) -> list[str]:
        """The report."""


MakeMeter = Callable[[Program, bytes], CostMeter]


def main(
    arguments: Sequence[str] | None = None, *, program: str = "vgpu", costs: MakeMeter | None = None
) -> int:
    """Run the command; the exit code. `costs`: with it, `run` has the flag --cost."""
    flags = _parser(program, costs).parse_args(arguments)
    try:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in flags.body(flags)))
    except UserError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has closed the pipe
        sys.stderr.close()
    except (OSError, UnicodeError) as error:
        sys.stderr.write(f"error: a file cannot be read or written: {printable(str(error))}\n")
        return USAGE
    return 0


_LINES = "the same kernel's text with line numbers, when --asm has none"


def _parser(program: str, costs: MakeMeter | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="Virtual AMD GPUs")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute one launch of a kernel")
    debug = commands.add_parser("debug", help="the same, stopped at its first instruction, with a prompt")
    for subparser in (run, debug):
        _run_flags(subparser, costs)
        subparser.set_defaults(debug=subparser is debug)
    show = commands.add_parser("show", help="list a kernel's text with byte addresses and source lines")
    show.add_argument("asm", type=Path, help="assembly text of Triton")
    show.add_argument("--lines", type=Path, metavar="FILE.s", help=_LINES)
    show.set_defaults(body=_show)
    commands.add_parser("list", help="the emulated archs").set_defaults(body=lambda _: arch_lines())
    hip = commands.add_parser(
        "env", help='build a libamdhip64.so of virtual GPUs and print its variables: eval "$(vgpu env)"'
    )
    hip.add_argument("--arch", default="gfx908", help="virtual devices, e.g. gfx908,gfx942")
    hip.add_argument("--asm", help="folders and .tar.gz archives of assembly texts, separated by colons")
    hip.add_argument("--release", type=int, default=7, help="the HIP release to implement: 5, 6 or 7")
    hip.add_argument("--cache", type=Path, help="folder for compiled code (default: AOTFORGE_CACHE)")
    hip.set_defaults(body=_hip)
    return parser


def _run_flags(run: argparse.ArgumentParser, costs: MakeMeter | None) -> None:
    run.set_defaults(body=_run, make_costs=costs, cost=False)
    add = run.add_argument
    add("hsaco", type=Path, help="the code object")
    add("--asm", type=Path, required=True, help="its assembly text of Triton")
    add("--arch", help="default: the one that the text names")
    add("--grid", default="1", help="workgroups per axis: X or X,Y or X,Y,Z")
    files = "in:FILE.npy, inout:FILE.npy:OUT.npy, out:TYPE:COUNT:OUT.npy, zero:TYPE:COUNT:OUT.npy"
    kinds = f"a number (1000, 0.5), {files}"
    add("--arg", action="append", default=[], metavar="[NAME=]ARG", help=f"in the kernel's order: {kinds}")
    add("--lds", type=int, default=0, help="dynamic LDS in bytes (Triton's metadata.shared)")
    add("--schedule", type=int, help="seed of a random wave schedule (default: waves in turn)")
    add("--seed", type=int, default=1, help="seed of the garbage that registers and memory start with")
    add("--limit", type=int, default=DEFAULT_LIMIT, help="wave-instructions per workgroup")
    trace = "write every executed instruction and its result ('-': standard output)"
    add("--trace", metavar="FILE", help=trace)
    checks = (
        "look also for wrong waits, races, barriers, uninitialised data, at half the speed (default: all)"
    )
    add("--checks", nargs="?", const="all", metavar="WHICH,...", help=checks)
    add("--races", action="store_true", help="look for data races in global memory between all waves")
    if costs:
        add("--cost", action="store_true", help="count traffic and conflicts, and estimate cycles")
    add("--trace-lane", type=int, default=0, help="the lane whose registers the trace shows")
    add = run.add_argument_group("stopping").add_argument
    place = (
        "stop before an instruction and show --dump: line of the text, byte (0x4c), label, or FILE.py:LINE"
    )
    add("--break", dest="breaks", action="append", default=[], metavar="PLACE", help=place)
    add("--break-wave", type=int, help="only in this wave of a workgroup")
    add("--break-group", metavar="X,Y,Z", help="only in this workgroup")
    add("--break-hit", type=int, default=1, help="from this arrival of the wave on (1)")
    add("--break-count", type=int, help="how many times (default 1, of `debug` 0); 0: every time")
    views = "v0-v7, s[0:3], vcc, exec, lds[0:256], arg0[0:64], v2:f32 ..."
    add("--dump", default="", metavar="WHAT,...", help=views)
    add("--lanes", metavar="A-B", help="show these lanes only")
    add("--lines", type=Path, metavar="FILE.s", help=_LINES)


def _show(flags: argparse.Namespace) -> list[str]:
    return listing_lines(flags.asm.read_text(), flags.lines.read_text() if flags.lines else None)


def _run(flags: argparse.Namespace) -> list[str]:
    asm = flags.asm.read_text()
    grid = parse_axes(flags.grid, "grid", 1)
    parsed = [parse_argument(text) for text in flags.arg]
    hsaco = flags.hsaco.read_bytes()
    arch = find_arch(flags.arch) if flags.arch else parse_listing(asm).arch
    program = Emulator(arch).load(hsaco, asm)
    names = [a.name or f"argument {i}" for i, a in enumerate(parsed)]
    if len(set(names)) < len(names):
        raise UnsupportedError("two arguments have the same name")
    memory = Memory({name: a.buffer for name, a in zip(names, parsed, strict=True) if a.buffer is not None})
    lines = flags.lines.read_text() if flags.lines else None
    info = DebugInfo(program=program, source=source_lines(asm, program.listing, lines_from=lines))
    session = _session(flags, info, memory, parsed)
    costs = flags.make_costs(program, hsaco) if flags.cost else None
    recorder = costs.recorder if costs else None
    if session and recorder:
        session.watch(recorder.indices, recorder.on_event)
    with _tracer(flags.trace, flags.trace_lane) as trace:
        request = LaunchRequest(
            grid=grid,
            arguments=[a.value for a in parsed],
            memory=memory,
            lds_bytes=flags.lds,
            schedule=flags.schedule,
            seed=flags.seed,
            limit=flags.limit,
            checks=_checks(flags.checks, parsed, names),
            races=flags.races,
            trace=trace,
            source=info,
            meter=costs.meter if costs else None,
            hooks=recorder.hooks if recorder else None,
        )
        report = session.run(request) if session else program.launch(request)
    if report is None:  # the user has quit
        return []
    for argument in parsed:
        if argument.output and argument.buffer is not None:
            np.save(argument.output, argument.buffer)
    return [
        *_report_lines(report),
        *(costs.lines(grid, flags.lds) if costs else []),
    ]


def _hip(flags: argparse.Namespace) -> list[str]:
    cache = flags.cache or default_cache()
    texts = (flags.asm or os.environ.get("AOTFORGE_ASM") or "").split(":")
    virtual = build_virtual_hip(cache, major=flags.release)
    places = [Path(text) for text in texts if text]
    return [exports(environment(virtual, devices=flags.arch.split(","), texts=places, cache=cache))]


def _checks(text: str | None, arguments: Sequence[Argument], names: Sequence[str]) -> Literal[False] | Checks:
    """The value of `--checks`; buffers that start as garbage have no value until the kernel stores one."""
    if text is None:
        return False
    known = ["waits", "races", "barriers", "uninitialised"]
    wanted = known if text == "all" else [name.strip() for name in text.split(",")]
    if unknown := sorted(set(wanted) - set(known)):
        raise UnknownNameError(f"unknown check {unknown[0]!r}", hint=suggest(unknown[0], [*known, "all"]))
    garbage = frozenset(name for name, a in zip(names, arguments, strict=True) if a.garbage)
    chosen = {name: name in wanted for name in known}
    return Checks(**chosen, unwritten=garbage)


def _session(
    flags: argparse.Namespace, info: DebugInfo, memory: Memory, arguments: Sequence[Argument]
) -> Session | None:
    """A session that stops as the flags describe, or None without stops."""
    if not flags.debug and not flags.breaks:
        if flags.dump:
            hint = "add --break PLACE, or use `debug` instead of `run`"
            raise UnsupportedError("--dump shows something at a breakpoint", hint=hint)
        return None
    count = flags.break_count if flags.break_count is not None else 0 if flags.debug else 1
    group = parse_axes(flags.break_group, "workgroup") if flags.break_group else None
    default = Breakpoint(wave=flags.break_wave, group=group, hit=flags.break_hit, count=count)
    breaks = [parse_breakpoint(text, info, default) for text in flags.breaks]
    parse_views(flags.dump)  # mistakes are reported before the launch
    width = info.program.target.lanes
    space = AddressSpace(memory)
    values = {
        f"arg{i}": a.value if a.buffer is None else space.address(int(a.value))
        for i, a in enumerate(arguments)
    }
    values |= {a.name: values[f"arg{i}"] for i, a in enumerate(arguments) if a.name}
    context = ViewContext(
        lanes=parse_lanes(flags.lanes, width) if flags.lanes else range(width),
        registers=info.program.registers,
        memory=space,
        arguments=values,
        width=width,
    )
    shell = Shell(context, views=flags.dump, prompts=flags.debug)
    shell.session = Session(info, shell.on_stop, breakpoints=breaks, at_entry=flags.debug)
    return shell.session


@contextmanager
def _tracer(file: str | None, lane: int) -> Iterator[Trace | None]:
    """A function that writes a trace to a file or to standard output (`-`), or None."""
    if file is None:
        yield None
        return
    with nullcontext(sys.stdout) if file == "-" else Path(file).open("w") as stream:
        yield lambda step: print(printable(trace_text(step, lane)), file=stream)


def _report_lines(report: LaunchReport) -> list[str]:
    rate = report.instructions / max(report.seconds, 1e-9) / 1e6
    return [
        f"{report.instructions} wave-instructions in {report.workgroups} workgroups, "
        f"{report.seconds:.3f} s on {report.threads} threads, {rate:.1f} M/s",
        *(f"{count:12} {name}" for name, count in report.counts.most_common()),
    ]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A number, or the address of `buffer`, which goes to `output`; with `garbage` it has no value at
    first."""

    value: int | float
    name: str = ""
    buffer: npt.NDArray[Any] | None = None
    output: Path | None = None
    garbage: bool = False


def parse_argument(text: str) -> Argument:
    """A number (with a point or exponent: a float), `in:FILE` (read-only), `inout:FILE:OUT`,
    `out:TYPE:COUNT:OUT` (starts as garbage) or `zero:TYPE:COUNT:OUT`, perhaps with `NAME=` before it. Raises
    UnsupportedError."""
    if named := _NAMED.fullmatch(text):
        return replace(parse_argument(named[2]), name=named[1])
    try:
        match text.split(":"):
            case ["in", file]:
                buffer = _load_array(Path(file))
                buffer.flags.writeable = False
                return Argument(value=buffer.ctypes.data, buffer=buffer)
            case ["inout", file, out]:
                buffer = _load_array(Path(file))
                return Argument(value=buffer.ctypes.data, buffer=buffer, output=Path(out))
            case [("out" | "zero") as kind, type_, count, out]:
                garbage = kind == "out"
                buffer = np.zeros(int(count), dtype=_TYPES[type_])
                buffer.view(np.uint8)[:] = 0xA5 if garbage else 0
                return Argument(value=buffer.ctypes.data, buffer=buffer, output=Path(out), garbage=garbage)
        return Argument(value=int(text, 0) if _INTEGER.fullmatch(text) else float(text))
    except (OSError, ValueError, KeyError, *_INVALID) as error:
        raise UnsupportedError(
            f"{text!r} is not a valid argument: {error}",
            hint="[NAME=] a number, in:FILE.npy, inout:FILE.npy:OUT.npy, out:TYPE:COUNT:OUT.npy or "
            "zero:TYPE:COUNT:OUT.npy; "
            f"types are {', '.join(_TYPES)}",
        ) from error


def _load_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file. Raises OSError, ValueError."""
    array = np.load(path)
    if not isinstance(array, np.ndarray):
        raise ValueError("it has several arrays")
    return array


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
