"""Python called before chosen instructions of a launch, everything else at full speed.

An instruction is executed through the pointer to its handler. A launch with probes gets a copy of the program in which the chosen
instructions have a handler that calls Python and then the real one: software breakpoints, as debuggers set them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aotforge.virtual_gpu.emulator import native

_FAULT, _STOPPED = 3, 10  # Wave.state and FaultReport.code of machine.h
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A wave is about to execute the instruction at `index` of `Program.lines`. `wave` is native.WAVES's structure; its registers
    may be read and changed. `waves` are all of its workgroup, `group` the workgroup's (x, y, z).
    """

    index: int
    wave: Any
    waves: tuple[Any, ...]
    group: tuple[int, int, int]


class Probes:
    """Probes of one launch, which then runs on one thread. `reached` is called with each arrival at a chosen instruction; an
    exception in it stops the launch and is raised from there.
    """

    def __init__(self, reached: Callable[[Arrival], None]) -> None:
        self._reached = reached
        self._wanted: frozenset[int] = frozenset()
        self._program: Any = None
        self._handlers: list[int] = []
        self.error: BaseException | None = None

    def choose(self, indices: Iterable[int]) -> None:
        """The instructions to stop before, by index; replaces earlier choices. May be called by `reached`."""
        wanted = frozenset(indices)
        if self._program is not None:
            for index in self._wanted - wanted:
                self._program[index].handler = self._handlers[index]
            for index in wanted - self._wanted:
                self._program[index].handler = self._own
        self._wanted = wanted

    def attach(self, instructions: Any, *, lanes: int, plan: native.Launch) -> Any:
        """A copy of bound instructions with the probes in it, for one launch; used by `Program.launch`."""
        program = type(instructions).from_buffer_copy(instructions)
        start, size = ctypes.addressof(program), ctypes.sizeof(native.Instruction)
        kind, step, count = native.WAVES[lanes], native.wave_bytes(lanes), int(plan.waves)
        grid = tuple(int(n) for n in plan.grid)
        position = plan.next

        def call(wave_at: int, instruction_at: int) -> None:
            index = (instruction_at - start) // size
            wave = kind.from_address(wave_at)
            first = wave_at - int(wave.number) * step
            running = int(position[0]) - 1  # one thread: the workgroup that was taken last
            arrival = Arrival(
                index=index,
                wave=wave,
                waves=tuple(kind.from_address(first + i * step) for i in range(count)),
                group=(running % grid[0], running // grid[0] % grid[1], running // (grid[0] * grid[1])),
            )
            try:
                self._reached(arrival)
            except BaseException as error:  # noqa: BLE001 - it is raised where the launch was asked for
                self.error = error
                wave.fault[0].code = _STOPPED
                wave.state = _FAULT
                return
            _HANDLER(self._handlers[index])(wave_at, instruction_at)

        self._callback = _HANDLER(call)  # kept alive as long as C may call it
        self._own = ctypes.cast(self._callback, ctypes.c_void_p).value
        self._handlers = [int(instruction.handler) for instruction in program]
        wanted, self._wanted, self._program, self.error = self._wanted, frozenset(), program, None
        self.choose(wanted)
        return program
