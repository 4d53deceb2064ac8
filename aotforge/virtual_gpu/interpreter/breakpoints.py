"""Python's debugger in interpreted kernels: breakpoints by file and line, and `breakpoint()` in the kernel's own text.

The interpreter executes a rewritten copy of a kernel whose code keeps file and line, so the standard debugger works on it. One command
is added: `show EXPRESSION` prints a tensor's type, shape and numbers (`p tensor` prints Triton's object).
"""

from __future__ import annotations

import dis
import pdb
import sys
from bdb import BdbQuit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.virtual_gpu.interpreter.number_formats import bf16_values


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a source file."""

    file: Path
    line: int


def find_place(text: str, folder: Path) -> Place:
    """`forward.py:61` below a family's folder. Raises UnsupportedError for another form, UnknownNameError without code there."""
    name, _, number = text.rpartition(":")
    if not name or not number.isdigit():
        raise UnsupportedError(f"{text!r} is no place in a source", hint="FILE.py:LINE")
    file, line = folder / name, int(number)
    if not file.is_file():
        known = ", ".join(sorted(path.name for path in folder.glob("*.py")))
        raise UnknownNameError(f"{folder.name} has no file {name}", hint=f"it has {known}")
    lines = _lines_with_code(compile(file.read_text(), str(file), "exec"))
    if line not in lines:
        near = sorted(sorted(lines, key=lambda n: abs(n - line))[:4])
        raise UnknownNameError(
            f"{name}:{line} has no code to stop at",
            hint=f"the nearest lines that have: {', '.join(map(str, near))}",
        )
    return Place(file=file, line=line)


def _lines_with_code(code: CodeType) -> set[int]:
    """Of the functions in a file, not of the file itself."""
    found: set[int] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= {line for _, line in dis.findlinestarts(constant) if line is not None}
            found |= _lines_with_code(constant)
            found.discard(constant.co_firstlineno)
    return found


def debugged(
    body: Callable[[], None], places: Sequence[Place], program: tuple[int, int, int] | None = None
) -> bool:
    """Run `body` with breakpoints; False when the user has left the debugger with `quit`.

    `program` limits stops, those of `breakpoint()` too, to one program of the grid.
    """
    debugger = _Debugger(program)
    for place in places:
        debugger.set_break(str(place.file), place.line)
    with _hook(debugger):
        try:
            debugger.watch(body)
        except BdbQuit:
            return False
        finally:
            debugger.clear_all_breaks()  # they are the process's, not the debugger's
    return True


@contextmanager
def _hook(debugger: _Debugger) -> Iterator[None]:
    """`breakpoint()` leads to the debugger until the context ends."""
    before = sys.breakpointhook
    sys.breakpointhook = debugger.called
    try:
        yield
    finally:
        sys.breakpointhook = before


class _Debugger(pdb.Pdb):
    """Pdb that stops in one program only, if wanted, and shows tensors."""

    def __init__(self, program: tuple[int, int, int] | None) -> None:
        super().__init__(nosigint=True)
        self.prompt = "(kernel) "
        self._program = program

    def watch(self, body: Callable[[], None]) -> None:
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

    def called(self, *_: Any, **__: Any) -> None:
        """`breakpoint()`."""
        if self._wanted():
            sys.settrace(None)  # or the debugger would stop in itself
            self.set_trace(sys._getframe(1))

    def break_here(self, frame: FrameType) -> bool:
        """Whether a breakpoint stops in this frame."""
        return super().break_here(frame) and self._wanted()

    def _wanted(self) -> bool:
        return self._program is None or tuple(interpreter.interpreter_builder.grid_idx) == self._program

    def do_show(self, text: str) -> None:
        """show EXPRESSION: type, shape and numbers of a tensor, as numpy prints them."""
        try:
            value = self._getval(text)
        except Exception:  # noqa: BLE001 - pdb has told it
            return
        self.message(tensor_text(value))

    def do_program(self, text: str) -> None:
        """program: which program of the grid is running, x, y, z."""
        self.message(str(tuple(interpreter.interpreter_builder.grid_idx)))


def tensor_text(value: Any) -> str:
    """An interpreted tensor as text; anything else as it prints itself."""
    if not isinstance(value, tl.tensor):
        return repr(value)
    data = np.asarray(value.handle.data)
    if value.dtype.scalar == tl.bfloat16:
        data = bf16_values(data)
    shape = "x".join(str(int(n)) for n in value.shape) or "scalar"
    return f"{value.dtype.scalar} {shape}\n{data}"
