"""Element types and tensor shapes of TTIR, and how LLVM holds them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .errors import UnsupportedError

Kind = Literal["int", "float", "ptr"]


@dataclass(frozen=True)
class Element:
    """An element type by MLIR's name. `bits` in memory; `pointee` of a pointer.

    Floats of less than 32 bits are computed as float32: `llvm` is the type in registers, `stored` in memory.
    """

    name: str
    kind: Kind
    bits: int
    pointee: Element | None = None

    @property
    def llvm(self) -> str:
        """LLVM's type of one element in a register."""
        if self.kind == "float":
            return "double" if self.bits == 64 else "float"
        return "ptr" if self.kind == "ptr" else f"i{self.bits}"

    @property
    def stored(self) -> str:
        """LLVM's type of one element in memory."""
        if self.is_narrow:
            return f"i{self.bits}"
        return "i8" if self.name == "i1" else self.llvm

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return max(self.bits, 8) // 8

    @property
    def is_narrow(self) -> bool:
        """A float of less than 32 bits."""
        return self.kind == "float" and self.bits < 32


_FLOATS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8E5M2": 8, "f8E4M3FN": 8, "f8E4M3FNUZ": 8, "f8E5M2FNUZ": 8,
        "f8E4M3B11FNUZ": 8,
}  # fmt: skip
I1, I8, I32, I64 = (Element(f"i{n}", "int", n) for n in (1, 8, 32, 64))
F32, F64 = Element("f32", "float", 32), Element("f64", "float", 64)


@dataclass(frozen=True)
class TensorType:
    """Shape and element. A scalar has shape None."""

    shape: tuple[int, ...] | None
    element: Element


def parse_type(text: str) -> TensorType:
    """A scalar or tensor type of TTIR. Raises UnsupportedError for any other."""
    text = text.strip()
    if text.startswith("tensor<"):
        *sizes, element = _split_tensor(text[len("tensor<") : -1])
        return TensorType(tuple(int(size) for size in sizes), _element(element))
    return TensorType(None, _element(text))


def _split_tensor(body: str) -> list[str]:
    match = re.match(r"((?:\d+x)*)(.*)", body, re.DOTALL)
    assert match is not None
    return [*match[1].split("x")[:-1], match[2].partition(",")[0] if "<" not in match[2] else match[2]]


def _element(text: str) -> Element:
    if text == "index":
        return I64
    if re.fullmatch(r"i\d+", text):
        return Element(text, "int", int(text[1:]))
    if text in _FLOATS:
        return Element(text, "float", _FLOATS[text])
    if text.startswith("!tt.ptr<"):
        pointee = text[len("!tt.ptr<") : -1].rpartition(",")
        inner = pointee[0] if pointee[0] and pointee[2].strip().isdigit() else text[len("!tt.ptr<") : -1]
        if not inner.startswith("tensor<"):
            return Element(text, "ptr", 64, _element(inner))
    raise UnsupportedError(f"the CPU back end does not support values of type {text}")
