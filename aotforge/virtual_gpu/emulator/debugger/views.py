"""Registers and memory as text: `v0-v3`, `s[0:3]`, `vcc`, `lds[0:256]`, `scratch[0:16]`, `arg0[0:64]`, `memory[0x..:0x..]`, each
with a format behind a colon, such as `v0:f32`.

Ranges of registers include both ends, as in assembly; ranges of bytes leave the end out, as in Python.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.errors import DecodeError, UnsupportedError
from aotforge.virtual_gpu.emulator.operands import operand
from aotforge.virtual_gpu.interpreter.memory import Memory
from aotforge.virtual_gpu.interpreter.number_formats import bf16_values

Words = npt.NDArray[np.uint32]

_REGISTERS = re.compile(r"([vas])(\d+)(?:-\1?(\d+))?$")
_BYTES = re.compile(r"([A-Za-z_]\w*)\[(0x[0-9a-fA-F]+|\d+):(0x[0-9a-fA-F]+|\d+)\]$")
_MOST_BYTES = 1 << 16
_MASKS = {"vcc", "exec"}  # one bit per lane
_HINT = "v0, v0-v7, v[0:7], a0, s[0:3], vcc, exec, m0, scc, lds[0:256], scratch[0:16], arg0[0:64], memory[0x1000:0x1040]"


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
    "bf16": lambda words: _floats(bf16_values(_halves(words))),
    "u16": lambda words: [str(int(half)) for half in _halves(words)],
    "u8": lambda words: [f"{int(byte):02x}" for byte in words.view(np.uint8)],
}
"""Words to texts, one, two or four per word, the low part first."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What to show. `space`: vector, scalar, scc, lds, scratch, memory or the name of an argument; registers or bytes from `first`
    to before `end`."""

    text: str
    space: str
    first: int = 0
    end: int = 0
    format: str = "x"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Where views look. `arguments` by name (`arg0` and the kernel's own names) to their values; `lanes` are those shown;
    `registers`: VGPRs and AGPRs that the kernel has."""

    wave: Any
    lanes: Sequence[int]
    registers: tuple[int, int]
    memory: Memory
    arguments: Mapping[str, int | float]
    width: int


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
    if m := _BYTES.match(body):
        first, end = int(m[2], 0), int(m[3], 0)
        if m[1] not in {"v", "s", "a", "ttmp"}:
            if not first < end <= first + _MOST_BYTES:
                raise UnsupportedError(f"{text!r}: no range of at most {_MOST_BYTES} bytes")
            return View(text=body, space=m[1], first=first, end=end, format=format_)
    body_text = f"{m[1]}[{m[2]}:{m[3] or m[2]}]" if (m := _REGISTERS.match(body)) else body
    if body == "scc":
        return View(text=body, space="scc", format=format_)
    try:
        found = operand(body_text)
    except DecodeError as error:
        raise UnsupportedError(f"{text!r} is nothing that can be shown", hint=_HINT) from error
    if found.space not in {"vector", "scalar"}:
        raise UnsupportedError(f"{text!r} is nothing that can be shown", hint=_HINT)
    return View(
        text=body, space=found.space, first=found.index, end=found.index + found.words, format=format_
    )


def show(view: View, sight: Sight) -> list[str]:
    """Lines of text. Raises UnsupportedError for registers and bytes that are not there."""
    if view.space == "vector":
        return [line for index in range(view.first, view.end) for line in _vector(index, view.format, sight)]
    if view.space == "scalar":
        words = np.array([sight.wave.s[i] for i in range(view.first, view.end)], dtype=np.uint32)
        if view.text in _MASKS and view.format == "x":
            mask = int(words[0]) | (int(words[1]) << 32 if sight.width == 64 else 0)
            return [f"{view.text} = {mask:0{sight.width // 4}x}"]
        return [f"{view.text} = {' '.join(FORMATS[view.format](words))}"]
    if view.space == "scc":
        return [f"scc = {sight.wave.scc}"]
    if view.space == "scratch":
        return [view.text, *_scratch(view, sight)]
    return [view.text, *_block(view.format, view.first, _bytes(view, sight))]


def _vector(index: int, format_: str, sight: Sight) -> list[str]:
    file, number = divmod(index, 256)
    name = f"{'va'[file]}{number}"
    if number >= sight.registers[file]:
        raise UnsupportedError(
            f"the kernel has no {name}",
            hint=f"it has {sight.registers[0]} VGPRs and {sight.registers[1]} AGPRs",
        )
    row = np.array(sight.wave.v[index], dtype=np.uint32)
    active = int(sight.wave.s[126]) | int(sight.wave.s[127]) << 32
    cells = []
    for lane in sight.lanes:
        text = " ".join(FORMATS[format_](row[lane : lane + 1]))
        cells.append(text if active >> lane & 1 else f"~{text}")
    return [name, *_rows([f"lane {lane:2}" for lane in sight.lanes], cells)]


def _scratch(view: View, sight: Sight) -> list[str]:
    size = int(sight.wave.scratch_bytes)
    if view.end > size:
        raise UnsupportedError(f"{view.text} is beyond the {size} bytes of scratch that a lane has")
    lines = []
    for lane in sight.lanes:
        at = int(sight.wave.scratch) + lane * size + view.first
        lines += [
            f"lane {lane}:",
            *_block(view.format, view.first, ctypes.string_at(at, view.end - view.first)),
        ]
    return lines


def _bytes(view: View, sight: Sight) -> bytes:
    if view.space == "lds":
        size = int(sight.wave.lds_bytes)
        if view.end > size:
            raise UnsupportedError(f"{view.text} is beyond the {size} bytes of LDS that the workgroup has")
        return ctypes.string_at(int(sight.wave.lds) + view.first, view.end - view.first)
    first, end = view.first, view.end
    if view.space != "memory":
        if view.space not in sight.arguments:
            raise UnsupportedError(
                f"{view.text}: the kernel has no argument {view.space}",
                hint=f"it has {', '.join(sight.arguments)}",
            )
        base = sight.arguments[view.space]
        if isinstance(base, float):
            raise UnsupportedError(f"{view.text}: the argument is the number {base}, no pointer")
        first, end = first + base, end + base
    for _, low, high, _ in sight.memory.spans():
        if low <= first and end <= high:
            return ctypes.string_at(first, end - first)
    near = [f"{name} {low:#x} to {high:#x}" for name, low, high, _ in sight.memory.spans()]
    raise UnsupportedError(f"{view.text} lies outside of the buffers", hint=f"they are: {'; '.join(near)}")


def _block(format_: str, first: int, data: bytes) -> list[str]:
    padded = data + bytes(-len(data) % 4)
    words = np.frombuffer(padded, dtype=np.uint32)
    return _rows(
        [f"{first + 4 * i:#06x}" for i in range(len(words))],
        [" ".join(FORMATS[format_](words[i : i + 1])) for i in range(len(words))],
    )


def _rows(names: Sequence[str], cells: Sequence[str], count: int = 8) -> list[str]:
    """`count` cells a row, aligned, each row with the name of its first cell."""
    width = max((len(cell) for cell in cells), default=0)
    return [
        f"  {names[i]}: {' '.join(cell.rjust(width) for cell in cells[i : i + count])}".rstrip()
        for i in range(0, len(cells), count)
    ]
