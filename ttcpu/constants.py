"""arith.constant: literals of MLIR as LLVM's."""

from __future__ import annotations

import re
import struct

from .context import Context, unsupported
from .element_types import Element
from .llvm_ir import Value, integer, real
from .mlir import Operation

_DENSE = re.compile(r"dense<(.*)>\s*:", re.DOTALL)


def lower_constant(ctx: Context, operation: Operation) -> None:
    """A scalar literal, or a tensor of one."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    scalar = constant_value(operation, type_.element)
    ctx.values[result.name] = scalar if type_.shape is None else ctx.constant_tensor(type_, scalar)


def constant_value(operation: Operation, element: Element) -> Value:
    """The literal of a scalar, or of a tensor whose elements are equal, else UnsupportedError."""
    text = operation.attributes["value"]
    dense = _DENSE.match(text)
    literal = (dense[1] if dense else text.rpartition(":")[0] or text).strip()
    if literal.startswith("["):
        raise unsupported(operation, "of different elements")
    if element.kind == "int":
        number = {"true": 1, "false": 0}.get(literal)
        return integer(int(literal, 0) if number is None else number, element.llvm)
    return real(_float(literal, element), element.llvm)


def _float(literal: str, element: Element) -> float:
    if not literal.startswith(("0x", "-0x")):
        return float(literal)
    bits = int(literal, 16)
    code = {64: "d", 32: "f", 16: "e"}[element.bits]
    if element.name == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    return float(struct.unpack(f"<{code}", bits.to_bytes(element.bits // 8, "little"))[0])
