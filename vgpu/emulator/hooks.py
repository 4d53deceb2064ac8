"""Python functions called before chosen instructions of a launch; others run at full speed.

An instruction is executed through the pointer to its handler. A launch with hooks gets a copy of the program
in which the chosen instructions have a handler that calls Python and then the original handler: software
breakpoints, as debuggers set them.
"""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from vgpu.emulator import native

_FAULT, _STOPPED = 3, 10  # Wave.state and FaultReport.code of machine.h
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True, kw_only=True)
class HookEvent:
    """A wave, which may be changed, is about to execute `Program.lines[index]`; `waves` of its workgroup."""

    index: int
    wave: Any
    waves: tuple[Any, ...]
    group: tuple[int, int, int]


class InstructionHooks:
    """Hooks of one launch, which then runs on one thread; exceptions of `on_event` end it."""

    def __init__(self, on_event: Callable[[HookEvent], None]) -> None:
        self._on_event = on_event
        self._indices: frozenset[int] = frozenset()
        self._program: Any = None
        self._handlers: list[int] = []
        self.error: BaseException | None = None

    def set_indices(self, indices: Iterable[int]) -> None:
        """The instructions to stop before, by index; replaces earlier ones. May be called by `on_event`."""
        wanted = frozenset(indices)
        if self._program is not None:
            for index in self._indices - wanted:
                self._program[index].handler = self._handlers[index]
            for index in wanted - self._indices:
                self._program[index].handler = self._own
        self._indices = wanted

    def attach(self, instructions: Any, *, lanes: int, launch: native.Launch) -> Any:
        """A copy of bound instructions with the hooks in it, for one launch; used by `launch.execute`."""
        program = type(instructions).from_buffer_copy(instructions)
        start, size = ctypes.addressof(program), ctypes.sizeof(native.Instruction)
        kind, step, count = native.WAVES[lanes], native.wave_bytes(lanes), int(launch.waves)
        x, y = int(launch.grid[0]), int(launch.grid[1])
        position = launch.next

        def call(wave_at: int, instruction_at: int) -> None:
            index = (instruction_at - start) // size
            wave = kind.from_address(wave_at)
            first = wave_at - int(wave.number) * step
            running = int(position[0]) - 1  # one thread: the workgroup that was taken last
            waves = tuple(kind.from_address(first + i * step) for i in range(count))
            group = (running % x, running // x % y, running // (x * y))
            try:
                self._on_event(HookEvent(index=index, wave=wave, waves=waves, group=group))
            except BaseException as error:  # noqa: BLE001 - the launch raises it
                self.error = error
                wave.fault[0].code = _STOPPED
                wave.state = _FAULT
                return
            _HANDLER(self._handlers[index])(wave_at, instruction_at)

        self._callback = _HANDLER(call)  # must outlive the launch
        self._own = ctypes.cast(self._callback, ctypes.c_void_p).value
        self._handlers = [int(instruction.handler) for instruction in program]
        wanted, self._indices, self._program, self.error = self._indices, frozenset(), program, None
        self.set_indices(wanted)
        return program
