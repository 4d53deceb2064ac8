"""The debugger's prompt. Commands are plain lines, so a pipe can drive it; the end of input quits."""

from __future__ import annotations

import cmd
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO

from vgpu.emulator.debugger.locations import parse_breakpoint
from vgpu.emulator.debugger.session import (
    STATES,
    Quit,
    Resume,
    Session,
    Stop,
    listing_text,
    stop_text,
)
from vgpu.emulator.debugger.views import FORMATS, ViewContext, format_view, parse_views
from vgpu.errors import UnsupportedError, UserError, printable

_DEFAULT_REGISTERS = "exec,vcc,scc,m0"


def _guarded(body: Callable[[Shell, str], bool | None]) -> Callable[[Shell, str], bool | None]:
    """A command whose errors are printed; the prompt then continues."""

    @functools.wraps(body)
    def run(self: Shell, text: str) -> bool | None:
        try:
            return body(self, text.strip())
        except UserError as error:
            self.print_line(f"error: {error}")
        except ValueError as error:
            self.print_line(f"error: not understood: {error}")
        return None

    return run


class Shell(cmd.Cmd):
    """Commands at stops, or only `views` at each. `session` is set by its creator."""

    prompt = "(vgpu) "

    def __init__(
        self,
        context: ViewContext,
        *,
        views: str = "",
        prompts: bool = True,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        stream = stdin or sys.stdin
        self.use_rawinput = stream is sys.stdin and stream.isatty()
        if not self.use_rawinput:
            self.prompt = ""  # a pipe's transcript has answers only
        self.session: Session
        self._context, self._views, self._format, self._prompts = context, views, "x", prompts
        self._stop: Stop
        self._wave: int | None = None
        self._resume: Resume | None = None

    def on_stop(self, stop: Stop) -> Resume:
        """Read commands until one resumes the launch. Raises Quit."""
        self._stop, self._wave, self._resume = stop, None, None
        self.print_line(stop_text(stop, self.session.info))
        if not self._prompts:
            self._print(self._views)
            return Resume()
        if self._views:
            self.do_print(self._views)
        self.cmdloop()
        if self._resume is None:
            raise Quit
        return self._resume

    def print_line(self, text: str) -> None:
        """Print a line."""
        self.stdout.write(f"{printable(text)}\n")
        self.stdout.flush()

    def emptyline(self) -> bool:
        """An empty line does nothing: in a script it is not a command."""
        return False

    def default(self, line: str) -> None:
        """Anything that is not a command."""
        self.print_line(f"error: unknown command: {line.split(maxsplit=1)[0]} (help lists them)")

    # ---- resuming ----

    @_guarded
    def do_step(self, text: str) -> bool:
        """step [N]: execute N instructions of this wave (1). Others run when they must. Short: s, next, n."""
        return self._resume_with(Resume(kind="step", count=_count(text)))

    do_next = do_step

    @_guarded
    def do_line(self, text: str) -> bool:
        """line: continue until this wave comes to another line of the kernel's source."""
        if not self.session.info.source:
            raise UnsupportedError("the assembly text has no line numbers", hint="use step, or give --lines")
        return self._resume_with(Resume(kind="line"))

    @_guarded
    def do_continue(self, text: str) -> bool:
        """continue: run to the next breakpoint or the end. Short: c."""
        return self._resume_with(Resume())

    def do_quit(self, text: str) -> bool:
        """quit: end the launch and exit. Short: q."""
        return True

    def do_EOF(self, text: str) -> bool:
        """The end of input: quit."""
        return True

    def _resume_with(self, resume: Resume) -> bool:
        self._resume = resume
        return True

    # ---- breakpoints ----

    @_guarded
    def do_break(self, text: str) -> None:
        """break [PLACE [wave N] [group X,Y,Z] [hit N] [count N]]: stop there, or list breakpoints. Short: b.
        PLACE: a line of the assembly text, a byte address (0x4c), a label, or FILE.py:LINE."""
        if text:
            self.print_line(f"breakpoint {self.session.add(parse_breakpoint(text, self.session.info))}")
            return
        for number, one in self.session.breakpoints.items():
            addresses = ", ".join(f"{self.session.info.program.lines[i].address:#x}" for i in one.indices)
            self.print_line(f"{number}: {one.text} at {addresses}, reached {self.session.hits(number)} times")

    @_guarded
    def do_delete(self, text: str) -> None:
        """delete N: remove breakpoint N."""
        if self.session.breakpoints.pop(int(text), None) is None:
            raise UnsupportedError(f"breakpoint {int(text)} does not exist")

    # ---- state ----

    @_guarded
    def do_print(self, text: str) -> None:
        """print WHAT,...: v0-v7, v[0:7], a0, s[0:3], vcc, exec, m0, scc, lds[0:256], scratch[0:16],
        NAME[0:64] (an argument's buffer), memory[0x..:0x..], each with :FORMAT behind it if wanted.
        Registers: both ends included. Bytes: end excluded. ~ marks inactive lanes. Short: p.
        """
        self._print(text)

    def _print(self, text: str) -> None:
        context = replace(self._context, wave=self._stop.event.waves[self._shown_wave])
        for view in parse_views(text, self._format):
            for line in format_view(view, context):
                self.print_line(line)

    @_guarded
    def do_registers(self, text: str) -> None:
        """registers [WHAT,...]: like print; alone: exec, vcc, scc, m0 and the kernel's SGPRs."""
        last = max(0, min(105, self.session.info.program.listing.fields.get("next_free_sgpr", 32) - 1))
        self.do_print(text or f"{_DEFAULT_REGISTERS},s[0:{last}]")

    @_guarded
    def do_where(self, text: str) -> None:
        """where [N]: the N instructions before and after this wave's next one (5). Short: w."""
        info, count = self.session.info, _count(text, 5)
        next_one = sum(i <= self._next_of(self._shown_wave) for i in info.firsts) - 1
        before = ""
        for index in info.firsts[max(0, next_one - count) : next_one + count + 1]:
            line = info.program.lines[index]
            for name in info.labels.get(line.address, ()):
                self.print_line(f"{name}:")
            source = info.source_of(line)
            marker = "=>" if index == info.firsts[next_one] else "  "
            self.print_line(listing_text(line, marker) + (f"  {source}" if source != before else ""))
            before = source

    @_guarded
    def do_waves(self, text: str) -> None:
        """waves: state and next instruction of each wave of the workgroup; * marks the one that print
        shows."""
        for number, wave in enumerate(self._stop.event.waves):
            line = self.session.info.program.lines[self._next_of(number)]
            ended = STATES[int(wave.state)] == "ended"
            self.print_line(
                f"{'*' if number == self._shown_wave else ' '} wave {number}: {STATES[int(wave.state)]}"
                + ("" if ended else f", next {line.address:#x} {' '.join(line.text.split())}")
            )

    @property
    def _shown_wave(self) -> int:
        return int(self._stop.event.wave.number) if self._wave is None else self._wave

    def _next_of(self, number: int) -> int:
        """Index of a wave's next instruction."""
        event = self._stop.event
        if number == int(event.wave.number):
            return event.index
        return min(int(event.waves[number].pc), len(self.session.info.program.lines) - 1)

    @_guarded
    def do_wave(self, text: str) -> None:
        """wave N: show another wave of the workgroup; steps stay with the wave that stopped."""
        if not 0 <= int(text) < len(self._stop.event.waves):
            raise UnsupportedError(f"the workgroup has waves 0 to {len(self._stop.event.waves) - 1}")
        self._wave = int(text)

    @_guarded
    def do_lanes(self, text: str) -> None:
        """lanes [A-B]: show these lanes only; alone: all of them."""
        width = self._context.width
        self._context = replace(self._context, lanes=parse_lanes(text, width) if text else range(width))

    @_guarded
    def do_format(self, text: str) -> None:
        """format NAME: how numbers are shown from now on: x, u32, i32, f32, f16, bf16, u16, u8."""
        if text not in FORMATS:
            raise UnsupportedError(f"unknown format {text!r}", hint=", ".join(FORMATS))
        self._format = text

    @_guarded
    def do_arguments(self, text: str) -> None:
        """arguments: the kernel's arguments and the buffers that they point to."""
        spans = self._context.memory.spans()
        for name, value in self._context.arguments.items():
            sizes = [high - low for _, low, high, _ in spans if low <= value < high]
            shown = f"{hex(int(value))}, {sizes[0]} bytes" if sizes and isinstance(value, int) else value
            self.print_line(f"{name} = {shown}")

    do_s = do_n = do_step
    do_c, do_q, do_b, do_p, do_w = do_continue, do_quit, do_break, do_print, do_where
    do_regs, do_args = do_registers, do_arguments


def parse_lanes(text: str, width: int) -> Sequence[int]:
    """`3` or `0-7`. Raises UnsupportedError."""
    first, dash, last = text.strip().partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise UnsupportedError(f"{text!r} is not a valid range of lanes", hint="such as 0-7")
    found = range(int(first), int(last or first) + 1)
    if not found or found[-1] >= width:
        raise UnsupportedError(f"a wave has lanes 0 to {width - 1}, not {text}")
    return found


def _count(text: str, default: int = 1) -> int:
    count = int(text) if text else default
    if count < 1:
        raise UnsupportedError(f"{count} is not a valid count")
    return count
