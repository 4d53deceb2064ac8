"""Arguments of the emulator's command line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator.decoded import Checks
from vgpu.errors import UnknownNameError, UnsupportedError, suggest

_TYPES: Mapping[str, Any] = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "bf16": np.uint16, "i8": np.int8,
        "u8": np.uint8,
    "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
"""Element types by Triton's names; bf16 is held as its bits."""
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)")
_FILE_LIMIT = 128 * 1024 * 1024
_INVALID = (MemoryError, OverflowError, EOFError)
"""What numpy raises, besides ValueError, for files that are not complete and for sizes that memory does not
have."""

_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|\d+)")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A number, or the address of `buffer`, which goes to `output` after the launch. `name` may be empty;
    `garbage`: the buffer has no value until the kernel stores one."""

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


def parse_grid(text: str) -> tuple[int, int, int]:
    """`X`, `X,Y` or `X,Y,Z`. Raises UnsupportedError."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdigit() for part in parts):
        raise UnsupportedError(f"{text!r} is not a valid grid", hint="workgroups per axis: X, X,Y or X,Y,Z")
    x, y, z = [*map(int, parts), 1, 1][:3]
    return x, y, z


def parse_checks(text: str) -> Checks:
    """`all`, or names of `Checks` joined by commas. Raises UnknownNameError."""
    known = ["waits", "races", "barriers", "uninitialised"]
    wanted = known if text == "all" else [name.strip() for name in text.split(",")]
    if unknown := sorted(set(wanted) - set(known)):
        raise UnknownNameError(f"unknown check {unknown[0]!r}", hint=suggest(unknown[0], [*known, "all"]))
    return Checks(**{name: name in wanted for name in known})  # type: ignore[arg-type]


def read_text(path: Path) -> str:
    """A text file. Raises UnsupportedError."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        hint = "the assembly text is Triton's asm['amdgcn']"
        raise UnsupportedError(f"{path} is not a text file", hint=hint) from error


def read_bytes(path: Path) -> bytes:
    """A file, or what a pipe has. Raises UnsupportedError."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
    except OSError as error:
        raise UnsupportedError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _FILE_LIMIT:
        raise UnsupportedError(f"{path} is larger than {_FILE_LIMIT} bytes", hint="it is not of one image")
    return data
