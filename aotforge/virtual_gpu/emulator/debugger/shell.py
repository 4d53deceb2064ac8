"""The debugger's prompt. Commands are plain lines, so a pipe can drive it; the end of input quits."""

from __future__ import annotations

import cmd
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from aotforge.errors import AotforgeError, UnsupportedError
from aotforge.virtual_gpu.emulator.debugger.places import parse_breakpoint
from aotforge.virtual_gpu.emulator.debugger.session import (
    STATES,
    Quit,
    Resume,
    Session,
    Stop,
    listing_text,
    place_text,
    sight,
)
from aotforge.virtual_gpu.emulator.debugger.views import FORMATS, parse_views, show
from aotforge.virtual_gpu.emulator.decoded import Line
from aotforge.virtual_gpu.interpreter.memory import Memory

_ORDINARY = "exec,vcc,scc,m0"


def _guarded(body: Callable[[Shell, str], bool | None]) -> Callable[[Shell, str], bool | None]:
    """A mistake in a command is told, and the prompt comes again."""

    @functools.wraps(body)
    def run(self: Shell, text: str) -> bool | None:
        try:
            return body(self, text)
        except AotforgeError as error:
            self.say(f"error: {error}")
        except ValueError as error:
            self.say(f"error: not understood: {error}")
        return None

    return run


class Shell(cmd.Cmd):
    """Commands at stops; `stopped` is the session's `on_stop`. `views` are shown at every stop."""

    prompt = "(vgpu) "

    def __init__(
        self,
        memory: Memory,
        arguments: Mapping[str, int | float],
        *,
        views: str = "",
        lanes: Sequence[int] | None = None,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        stream = stdin or sys.stdin
        self.use_rawinput = stream is sys.stdin and stream.isatty()
        if not self.use_rawinput:
            self.prompt = ""  # a pipe's transcript has answers only
        self.session: Session  # set by who starts the session
        self._memory, self._arguments, self._views, self._format = memory, arguments, views, "x"
        self._lanes = lanes
        self._stop: Stop
        self._wave: int | None = None
        self._resume: Resume | None = None

    def stopped(self, stop: Stop) -> Resume:
        """Ask until a command goes on. Raises Quit."""
        self._stop, self._wave, self._resume = stop, None, None
        self.say(place_text(stop, self.session.where))
        if self._views:
            self.do_print(self._views)
        self.cmdloop()
        if self._resume is None:
            raise Quit
        return self._resume

    def say(self, text: str) -> None:
        """Print a line."""
        self.stdout.write(f"{text}\n")
        self.stdout.flush()

    def emptyline(self) -> bool:
        """An empty line does nothing: in a script it is no command."""
        return False

    def default(self, line: str) -> None:
        """Something else than a command."""
        self.say(f"error: unknown command: {line.split(maxsplit=1)[0]} (help lists them)")

    # ---- going on ----

    @_guarded
    def do_step(self, text: str) -> bool:
        """step [N]: execute N instructions of this wave (1). Others run when they must. Short: s, next, n."""
        return self._go(Resume(kind="step", count=_count(text)))

    do_next = do_step

    @_guarded
    def do_line(self, text: str) -> bool:
        """line: go on until this wave comes to another line of the kernel's source."""
        if not self.session.where.source:
            raise UnsupportedError("the assembly text has no line numbers", hint="use step, or give --lines")
        return self._go(Resume(kind="line"))

    @_guarded
    def do_continue(self, text: str) -> bool:
        """continue: run to the next breakpoint or the end. Short: c."""
        return self._go(Resume())

    def do_quit(self, text: str) -> bool:
        """quit: end the launch and leave. Short: q."""
        return True

    def do_EOF(self, text: str) -> bool:
        """The end of input: quit."""
        return True

    def _go(self, resume: Resume) -> bool:
        self._resume = resume
        return True

    # ---- breakpoints ----

    @_guarded
    def do_break(self, text: str) -> None:
        """break [PLACE [wave N] [group X,Y,Z] [hit N] [count N]]: stop there, or list breakpoints. Short: b.
        PLACE: a line of the assembly text, a byte address (0x4c), a label, or FILE.py:LINE."""
        if text.strip():
            number = self.session.add(parse_breakpoint(text, self.session.where))
            self.say(f"breakpoint {number}")
        for number, one in self.session.breakpoints.items():
            if not text.strip():
                lines = [self.session.where.program.lines[i] for i in one.indices]
                places = ", ".join(f"{line.address:#x}" for line in lines)
                self.say(f"{number}: {one.text} at {places}, came by {self.session.hits(number)} times")

    @_guarded
    def do_delete(self, text: str) -> None:
        """delete N: remove breakpoint N."""
        if self.session.breakpoints.pop(int(text), None) is None:
            raise UnsupportedError(f"there is no breakpoint {int(text)}")

    # ---- looking ----

    @_guarded
    def do_print(self, text: str) -> None:
        """print WHAT,...: v0-v7, v[0:7], a0, s[0:3], vcc, exec, m0, scc, lds[0:256], scratch[0:16], NAME[0:64] (an argument's
        buffer), memory[0x..:0x..], each with :FORMAT behind it if wanted. Registers: both ends included. Bytes: end excluded.
        ~ marks inactive lanes. Short: p."""
        view = sight(
            self._stop, self.session.where, self._memory, self._arguments, wave=self._wave, lanes=self._lanes
        )
        for one in parse_views(text, self._format):
            for line in show(one, view):
                self.say(line)

    @_guarded
    def do_registers(self, text: str) -> None:
        """registers [WHAT,...]: like print; alone: exec, vcc, scc, m0 and the kernel's SGPRs."""
        last = max(0, min(105, self.session.where.program.listing.fields.get("next_free_sgpr", 32) - 1))
        self.do_print(text or f"{_ORDINARY},s[0:{last}]")

    @_guarded
    def do_lds(self, text: str) -> None:
        """lds FROM END [FORMAT]: bytes of LDS."""
        self.do_print(_range("lds", text))

    @_guarded
    def do_scratch(self, text: str) -> None:
        """scratch FROM END [FORMAT]: bytes of every shown lane's scratch."""
        self.do_print(_range("scratch", text))

    @_guarded
    def do_memory(self, text: str) -> None:
        """memory WHERE FROM END [FORMAT]: WHERE is an argument (arg0 or its name), or absent for addresses."""
        words = text.split()
        named = bool(words) and not words[0][0].isdigit()
        self.do_print(_range(words[0] if named else "memory", " ".join(words[1:] if named else words)))

    @_guarded
    def do_where(self, text: str) -> None:
        """where [N]: the N instructions before and after this wave's next one (5). Short: w."""
        program = self.session.where.program
        here = self._stop.arrival.index if self._wave is None else self._next_of(self._wave)
        count = _count(text, 5)
        firsts = [i for i in self.session.where.firsts if i <= here]
        at = len(firsts) - 1
        shown = self.session.where.firsts[max(0, at - count) : at + count + 1]
        labels = self.session.where.labels
        before = ""
        for i in shown:
            line: Line = program.lines[i]
            for name in labels.get(line.address, ()):
                self.say(f"{name}:")
            source = self.session.where.source_of(line)
            self.say(
                listing_text(line, "=>" if i == firsts[at] else "  ")
                + (f"  {source}" if source != before else "")
            )
            before = source

    @_guarded
    def do_waves(self, text: str) -> None:
        """waves: state and next instruction of each wave of the workgroup; * is the one that print looks at."""
        for number, wave in enumerate(self._stop.arrival.waves):
            chosen = (self._wave if self._wave is not None else int(self._stop.arrival.wave.number)) == number
            line = self.session.where.program.lines[self._next_of(number)]
            ended = int(wave.state) == 2
            self.say(
                f"{'*' if chosen else ' '} wave {number}: {STATES[int(wave.state)]}"
                + ("" if ended else f", next {line.address:#x} {' '.join(line.text.split())}")
            )

    def _next_of(self, number: int) -> int:
        """Index of a wave's next instruction."""
        if number == int(self._stop.arrival.wave.number):
            return self._stop.arrival.index
        last = len(self.session.where.program.lines) - 1
        return min(int(self._stop.arrival.waves[number].pc), last)

    @_guarded
    def do_wave(self, text: str) -> None:
        """wave N: look at another wave of the workgroup; steps stay with the wave that stopped."""
        if not 0 <= int(text) < len(self._stop.arrival.waves):
            raise UnsupportedError(f"the workgroup has waves 0 to {len(self._stop.arrival.waves) - 1}")
        self._wave = int(text)

    @_guarded
    def do_lanes(self, text: str) -> None:
        """lanes [A-B]: show these lanes only; alone: all of them."""
        self._lanes = parse_lanes(text, self.session.where.program.target.lanes) if text.strip() else None

    @_guarded
    def do_format(self, text: str) -> None:
        """format NAME: how numbers are shown from now on: x, u32, i32, f32, f16, bf16, u16, u8."""
        if text.strip() not in FORMATS:
            raise UnsupportedError(f"unknown format {text.strip()!r}", hint=", ".join(FORMATS))
        self._format = text.strip()

    @_guarded
    def do_arguments(self, text: str) -> None:
        """arguments: the kernel's arguments and the buffers that they point to."""
        for name, value in self._arguments.items():
            spans = [(n, high - low) for n, low, high, _ in self._memory.spans() if low <= value < high]
            size = f", {spans[0][1]} bytes" if spans else ""
            self.say(f"{name} = {value if isinstance(value, float) or not spans else hex(value)}{size}")

    do_s = do_n = do_step
    do_c, do_q, do_b, do_p, do_w = do_continue, do_quit, do_break, do_print, do_where
    do_regs, do_args = do_registers, do_arguments


def parse_lanes(text: str, width: int) -> Sequence[int]:
    """`3` or `0-7`. Raises UnsupportedError."""
    first, dash, last = text.strip().partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise UnsupportedError(f"{text!r} is no range of lanes", hint="such as 0-7")
    found = range(int(first), int(last or first) + 1)
    if not found or found[-1] >= width:
        raise UnsupportedError(f"a wave has lanes 0 to {width - 1}, not {text}")
    return found


def _count(text: str, default: int = 1) -> int:
    count = int(text) if text.strip() else default
    if count < 1:
        raise UnsupportedError(f"{count} is no count")
    return count


def _range(space: str, text: str) -> str:
    words = text.split()
    if len(words) not in {2, 3}:
        raise UnsupportedError(f"two numbers of bytes are needed: {space} FROM END [FORMAT]")
    return f"{space}[{words[0]}:{words[1]}]" + (f":{words[2]}" if len(words) == 3 else "")
