"""Python's debugger for interpreted kernels: breakpoints by file and line, and `breakpoint()`.

The interpreter executes a rewritten copy of a kernel whose code keeps file and line, so the standard debugger
works on it. Commands are added: `show EXPRESSION` prints a tensor's type, shape and numbers (`p tensor`
prints Triton's object), `program` prints the running program of the grid.
"""

import dis
import pdb
import sys
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.verify.interpreter.corrections import numbers


def parse_location(text: str, folder: Path) -> tuple[Path, int]:
    """File and line of `forward.py:61` below a family's folder. Raises UnsupportedError, UnknownNameError."""
    name, _, number = text.rpartition(":")
    if not name or not number.isdigit():
        raise UnsupportedError(f"{text!r} is not a valid location", hint="write FILE.py:LINE")
    file, line = folder / name, int(number)
    if not file.is_file():
        known = ", ".join(sorted(path.name for path in folder.glob("*.py")))
        raise UnknownNameError(f"{folder.name} has no file {name}", hint=f"it has {known}")
    lines = _lines_with_code(compile(file.read_text(), str(file), "exec"))
    if line not in lines:
        near = sorted(sorted(lines, key=lambda n: abs(n - line))[:4])
        raise UnknownNameError(
            f"{name}:{line} has no code to stop at",
            hint=f"the nearest lines with code: {', '.join(map(str, near))}",
        )
    return file, line


def _lines_with_code(code: CodeType) -> set[int]:
    """Of the functions in a file, not of the file itself."""
    found: set[int] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= {line for _, line in dis.findlinestarts(constant) if line is not None}
            found |= _lines_with_code(constant)
            found.discard(constant.co_firstlineno)
    return found


def run_with_debugger(
    body: Callable[[], None],
    locations: Sequence[tuple[Path, int]],
    program: tuple[int, int, int] | None = None,
) -> bool:
    """Run `body`, stopping in one `program` of the grid or all; False when the user quits the debugger."""
    debugger = _Debugger(program)
    for file, line in locations:
        debugger.set_break(str(file), line)
    before, sys.breakpointhook = sys.breakpointhook, debugger.on_breakpoint
    try:
        debugger.trace(body)
    except BdbQuit:
        return False
    finally:
        sys.breakpointhook = before
        debugger.clear_all_breaks()  # they are the process's, not the debugger's
    return True


class _Debugger(pdb.Pdb):
    """Pdb that shows tensors and may stop in one program of the grid only."""

    def __init__(self, program: tuple[int, int, int] | None) -> None:
        super().__init__(nosigint=True, readrc=False)  # .pdbrc of the current folder may be of another user
        self.prompt = "(kernel) "
        self._program = program

    def trace(self, body: Callable[[], None]) -> None:
        """Run with tracing, without a stop at the first line."""
        self.reset()
        self.botframe = sys._getframe()
        self._set_stopinfo(self.botframe, None, -1)  # type: ignore[attr-defined]
        before = sys.gettrace()
        sys.settrace(self.trace_dispatch)
        try:
            body()
        finally:
            sys.settrace(before)

    def on_breakpoint(self, *_: Any, **__: Any) -> None:
        """`breakpoint()`."""
        if self._in_program():
            sys.settrace(None)  # or the debugger would stop in itself
            self.set_trace(sys._getframe(1))

    def break_here(self, frame: FrameType) -> bool:
        """Whether a breakpoint stops in this frame."""
        return super().break_here(frame) and self._in_program()

    def _in_program(self) -> bool:
        return self._program is None or tuple(interpreter.interpreter_builder.grid_idx) == self._program

    def do_show(self, text: str) -> None:
        """show EXPRESSION: type, shape and numbers of a tensor, as numpy prints them."""
        try:
            value = self._getval(text)
        except Exception:  # noqa: BLE001 - pdb has printed it
            return
        self.message(tensor_text(value))

    def do_program(self, text: str) -> None:
        """program: the running program of the grid, x, y, z."""
        self.message(str(tuple(interpreter.interpreter_builder.grid_idx)))


def tensor_text(value: Any) -> str:
    """An interpreted tensor as text; the `repr` of anything else."""
    if not isinstance(value, tl.tensor):
        return repr(value)
    data = numbers(np.asarray(value.handle.data), value.dtype.scalar)
    shape = "x".join(str(int(n)) for n in value.shape) or "scalar"
    return f"{value.dtype.scalar} {shape}\n{data}"
