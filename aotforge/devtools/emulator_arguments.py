"""The command line's arguments, and traces as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.virtual_gpu.emulator.decoded import Checks, Operand
from aotforge.virtual_gpu.emulator.launch import Step

_TYPES: Mapping[str, Any] = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "bf16": np.uint16, "i8": np.int8, "u8": np.uint8,
    "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
"""Element types by Triton's names; bf16 is held as its bits."""


_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)")
_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|\d+)")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A kernel argument: a number, or the address of `buffer`, which is written to `output` after the launch. `name` may be
    empty: code objects do not name arguments. `garbage`: the buffer has no value until the kernel stores one.
    """

    value: int | float
    name: str = ""
    buffer: npt.NDArray[Any] | None = None
    output: Path | None = None
    garbage: bool = False


def parse_argument(text: str) -> Argument:
    """A number (with a point or exponent: a float), `in:FILE`, `inout:FILE:OUT`, `out:TYPE:COUNT:OUT` (starts as garbage) or
    `zero:TYPE:COUNT:OUT`, any of them with `NAME=` before it. Inputs are read-only to the kernel. Raises UnsupportedError.
    """
    if named := _NAMED.fullmatch(text):
        return replace(parse_argument(named[2]), name=named[1])
    kind, _, rest = text.partition(":")
    parts = rest.split(":")
    try:
        if kind == "in" and len(parts) == 1:
            buffer = np.load(parts[0])
            buffer.flags.writeable = False
            return Argument(value=buffer.ctypes.data, buffer=buffer)
        if kind == "inout" and len(parts) == 2:
            buffer = np.load(parts[0])
            return Argument(value=buffer.ctypes.data, buffer=buffer, output=Path(parts[1]))
        if kind in {"out", "zero"} and len(parts) == 3:
            count = int(parts[1])
            buffer = np.zeros(count, dtype=_TYPES[parts[0]])
            if kind == "out":
                buffer.view(np.uint8)[:] = 0xA5
            return Argument(
                value=buffer.ctypes.data, buffer=buffer, output=Path(parts[2]), garbage=kind == "out"
            )
        return Argument(value=int(text, 0) if _INTEGER.fullmatch(text) else float(text))
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedError(
            f"argument {text!r} is not understood: {error}",
            hint="[NAME=] a number, in:FILE.npy, inout:FILE.npy:OUT.npy, out:TYPE:COUNT:OUT.npy or zero:TYPE:COUNT:OUT.npy; "
            f"types are {', '.join(_TYPES)}",
        ) from error


def parse_grid(text: str) -> tuple[int, int, int]:
    """`X`, `X,Y` or `X,Y,Z`. Raises UnsupportedError."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdigit() for part in parts):
        raise UnsupportedError(f"{text!r} is no grid", hint="workgroups per axis: X, X,Y or X,Y,Z")
    x, y, z = [*map(int, parts), 1, 1][:3]
    return x, y, z


def parse_checks(text: str) -> Checks:
    """`all`, or names of `Checks` joined by commas. Raises UnknownNameError."""
    known = ["waits", "races", "barriers", "uninitialised"]
    wanted = known if text == "all" else [name.strip() for name in text.split(",")]
    if unknown := sorted(set(wanted) - set(known)):
        raise UnknownNameError(f"there is no check {unknown[0]!r}", hint=suggest(unknown[0], [*known, "all"]))
    on = {name: name in wanted for name in known}
    return Checks(
        waits=on["waits"], races=on["races"], barriers=on["barriers"], uninitialised=on["uninitialised"]
    )


def read_text(path: Path) -> str:
    """A text file. Raises UnsupportedError."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise UnsupportedError(
            f"{path} is no text", hint="the assembly text is Triton's asm['amdgcn']"
        ) from error


def read_bytes(path: Path) -> bytes:
    """A file. Raises UnsupportedError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnsupportedError(f"{path} cannot be read: {error.strerror}") from error


def trace_text(step: Step, lane: int) -> str:
    """One executed instruction: wave, byte address, text, and what its first operand and EXEC hold now."""
    wave = step.wave
    exec_ = int(wave.s[126]) | int(wave.s[127]) << 32
    values = [_value(wave, operand, lane) for operand in step.line.operands[:1]]
    result = "".join(f"  {name}" for name in values if name)
    return f"wave {wave.number} {step.line.address:#06x}  {step.line.text}  ;{result} exec={exec_:x} scc={wave.scc}"


def _value(wave: Any, operand: Operand, lane: int) -> str:
    if operand.space == "scalar":
        words = [int(wave.s[operand.index + i]) for i in range(operand.words)]
    elif operand.space == "vector":
        words = [int(wave.v[operand.index + i][lane]) for i in range(operand.words)]
    else:
        return ""
    return f"{operand.text}={' '.join(f'{word:08x}' for word in words)}"
