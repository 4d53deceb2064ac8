"""Types of a kernel's parameters, and pointers that cannot be null, for the runtime library."""

from __future__ import annotations

from collections.abc import Iterator

from .element_types import parse_type
from .image import Parameter, ValueType
from .mlir import Block, Operation

_SCALARS: dict[str, ValueType] = {"i32": "i32", "i64": "i64", "f32": "f32"}
_ADDRESSES = {
    "tt.addptr",
    "tt.splat",
    "tt.broadcast",
    "tt.expand_dims",
    "tt.bitcast",
    "tt.reshape",
    "tt.trans",
}
_ACCESSES = {"tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"}


def described_parameters(entry: Operation) -> tuple[Parameter, ...] | None:
    """Of a kernel's function. None for types that a pack's operators do not have, such as float64."""
    block = entry.regions[0].entry
    needed = _needed(block)
    parameters = []
    for argument in block.arguments:
        element = parse_type(argument.type).element
        kind: ValueType | None = "ptr" if element.kind == "ptr" else _SCALARS.get(element.name)
        if kind is None:
            return None
        parameters.append(Parameter(kind=kind, needed=argument.name in needed))
    return tuple(parameters)


def _needed(block: Block) -> set[str]:
    """Arguments through which the function reads or writes a tensor under no condition, and never null.

    Accesses in branches and loops may not happen, nor those of a scalar with a mask.
    """
    roots = {argument.name: argument.name for argument in block.arguments}
    accessed, compared = set(), set()
    for operation in block.operations:
        for inner in _nested(operation):
            base = roots.get(inner.operands[0].name, "") if inner.operands else ""
            if base and inner.name in _ADDRESSES:
                roots |= {result.name: base for result in inner.results}
            elif base and inner.name == "tt.ptr_to_int":
                compared.add(base)
            elif base and inner is operation and inner.name in _ACCESSES and not _is_conditional(inner):
                accessed.add(base)
    return accessed - compared


def _is_conditional(access: Operation) -> bool:
    data = 1 if access.name == "tt.load" else 2
    return len(access.operands) > data and not access.operands[0].type.startswith("tensor")


def _nested(operation: Operation) -> Iterator[Operation]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _nested(inner)
