"""Registers and memory as text.

Views: `v0-v3`, `s[0:3]`, `vcc`, `lds[0:256]`, `scratch[0:16]`, `arg0[0:64]`, `memory[0x..:0x..]`.
A format may follow a colon, such as `v0:f32`. Ranges of registers include both ends, as in assembly; ranges
of bytes exclude the end, as in Python.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator.address_space import AddressSpace
from vgpu.emulator.operands import operand
from vgpu.errors import DecodeError, UnsupportedError

Words = npt.NDArray[np.uint32]

_REGISTERS = re.compile(r"([vas])(\d+)(?:-\1?(\d+))?$")
_BYTES = re.compile(r"([A-Za-z_]\w*)\[(0x[0-9a-fA-F]+|\d+):(0x[0-9a-fA-F]+|\d+)\]$")
_MOST_BYTES = 1 << 16
_MASKS = {"vcc", "exec"}  # one bit per lane
_HINT = (
    "v0, v0-v7, v[0:7], a0, s[0:3], vcc, exec, m0, scc, "
    "lds[0:256], scratch[0:16], arg0[0:64], memory[0x1000:0x1040]"
)


def _halves(words: Words) -> npt.NDArray[np.uint16]:
    return np.ascontiguousarray(words).view(np.uint16)


def _floats(values: npt.NDArray[Any]) -> list[str]:
    return [f"{float(value):.6g}" for value in values]


FORMATS: Mapping[str, Callable[[Words], list[str]]] = {
    "x": lambda words: [f"{int(word):08x}" for word in words],
    "u32": lambda words: [str(int(word)) for word in words],
    "i32": lambda words: [str(int(word)) for word in words.view(np.int32)],
    "f32": lambda words: _floats(words.view(np.float32)),
    "f16": lambda words: _floats(_halves(words).view(np.float16)),
    "bf16": lambda words: _floats((_halves(words).astype(np.uint32) << 16).view(np.float32)),
    "u16": lambda words: [str(int(half)) for half in _halves(words)],
    "u8": lambda words: [f"{int(byte):02x}" for byte in words.view(np.uint8)],
}
"""Words to texts, one, two or four per word, the low part first."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Registers or bytes of a space: vector, scalar, scc, lds, scratch, memory, or an argument's name."""

    text: str
    space: str
    first: int = 0
    end: int = 0
    format: str = "x"

    def words(self, words: Words) -> str:
        """Words in the view's format."""
        return " ".join(FORMATS[self.format](words))


@dataclass(frozen=True, kw_only=True)
class ViewContext:
    """What views show; `registers`: the kernel's VGPRs and AGPRs, `width`: lanes of the wave."""

    lanes: Sequence[int]
    registers: tuple[int, int]
    memory: AddressSpace
    arguments: Mapping[str, int | float]
    width: int
    wave: Any = None


def parse_views(text: str, default: str = "x") -> list[View]:
    """A list separated by commas. Raises UnsupportedError."""
    return [_parse(part.strip(), default) for part in text.split(",") if part.strip()]


def _parse(text: str, default: str) -> View:
    body, format_ = text, default
    head, colon, tail = text.rpartition(":")
    if colon and "[" not in tail and "]" not in tail:
        body, format_ = head, tail
    if format_ not in FORMATS:
        raise UnsupportedError(f"{text!r}: unknown format {format_!r}", hint=", ".join(FORMATS))
    if body == "scc":
        return View(text=body, space="scc", format=format_)
    if (m := _BYTES.match(body)) and m[1] not in {"v", "s", "a", "ttmp"}:
        first, end = int(m[2], 0), int(m[3], 0)
        if not first < end <= first + _MOST_BYTES:
            raise UnsupportedError(f"{text!r} is not a valid range of at most {_MOST_BYTES} bytes")
        return View(text=body, space=m[1], first=first, end=end, format=format_)
    try:
        found = operand(f"{m[1]}[{m[2]}:{m[3] or m[2]}]" if (m := _REGISTERS.match(body)) else body)
    except DecodeError:
        found = None
    if found is None or found.space not in {"vector", "scalar"}:
        raise UnsupportedError(f"{text!r} is not a register or a range of memory", hint=_HINT)
    end = found.index + found.words
    return View(text=body, space=found.space, first=found.index, end=end, format=format_)


def format_view(view: View, context: ViewContext) -> list[str]:
    """Lines of text. Raises UnsupportedError for registers and bytes that do not exist."""
    if view.space == "vector":
        return [line for index in range(view.first, view.end) for line in _vector(index, view, context)]
    if view.space == "scalar":
        return [f"{view.text} = {_scalar(view, context)}"]
    if view.space == "scc":
        return [f"scc = {context.wave.scc}"]
    if view.space == "scratch":
        return [view.text, *_scratch(view, context)]
    return [view.text, *_block(view, _bytes(view, context))]


def _scalar(view: View, context: ViewContext) -> str:
    words = np.array([context.wave.s[i] for i in range(view.first, view.end)], dtype=np.uint32)
    if view.text in _MASKS and view.format == "x":
        mask = int(words[0]) | (int(words[1]) << 32 if context.width == 64 else 0)
        return f"{mask:0{context.width // 4}x}"
    return view.words(words)


def _vector(index: int, view: View, context: ViewContext) -> list[str]:
    file, number = divmod(index, 256)
    name = f"{'va'[file]}{number}"
    if number >= context.registers[file]:
        raise UnsupportedError(
            f"the kernel has no {name}",
            hint=f"it has {context.registers[0]} VGPRs and {context.registers[1]} AGPRs",
        )
    row = np.array(context.wave.v[index], dtype=np.uint32)
    active = int(context.wave.s[126]) | int(context.wave.s[127]) << 32
    cells = [("" if active >> lane & 1 else "~") + view.words(row[lane : lane + 1]) for lane in context.lanes]
    return [name, *_rows([f"lane {lane:2}" for lane in context.lanes], cells)]


def _scratch(view: View, context: ViewContext) -> list[str]:
    size = int(context.wave.scratch_bytes)
    if view.end > size:
        raise UnsupportedError(f"{view.text} is beyond the {size} bytes of scratch that a lane has")
    lines = []
    for lane in context.lanes:
        start = int(context.wave.scratch) + lane * size + view.first
        lines += [f"lane {lane}:", *_block(view, ctypes.string_at(start, view.end - view.first))]
    return lines


def _bytes(view: View, context: ViewContext) -> bytes:
    first, end = view.first, view.end
    if view.space == "lds":
        size = int(context.wave.lds_bytes)
        if end > size:
            raise UnsupportedError(f"{view.text} is beyond the {size} bytes of LDS that the workgroup has")
        return ctypes.string_at(int(context.wave.lds) + first, end - first)
    if view.space != "memory":
        base = context.arguments.get(view.space)
        if base is None:
            raise UnsupportedError(
                f"{view.text}: the kernel has no argument {view.space}",
                hint=f"it has {', '.join(context.arguments)}",
            )
        if isinstance(base, float):
            raise UnsupportedError(f"{view.text}: the argument is the number {base}, not a pointer")
        first, end = first + base, end + base
    found = context.memory.read(first, end)
    if found is not None:
        return found
    near = "; ".join(f"{name} {low:#x} to {high:#x}" for name, low, high, _ in context.memory.spans())
    raise UnsupportedError(f"{view.text} is outside of the buffers", hint=f"they are: {near}")


def _block(view: View, data: bytes) -> list[str]:
    words = np.frombuffer(data + bytes(-len(data) % 4), dtype=np.uint32)
    names = [f"{view.first + 4 * i:#06x}" for i in range(len(words))]
    return _rows(names, [view.words(words[i : i + 1]) for i in range(len(words))])


def _rows(names: Sequence[str], cells: Sequence[str], count: int = 8) -> list[str]:
    """`count` cells a row, aligned, each row with the name of its first cell."""
    width = max((len(cell) for cell in cells), default=0)
    return [
        f"  {names[i]}: {' '.join(cell.rjust(width) for cell in cells[i : i + count])}".rstrip()
        for i in range(0, len(cells), count)
    ]
