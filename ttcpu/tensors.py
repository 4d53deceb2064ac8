"""Tensors during lowering: expressions that are evaluated where they are used, and buffers in memory.

An element-wise expression costs nothing until a loop over its consumer's elements evaluates it, a vector at a
time; what is expensive and used again, or must be read at a certain time, goes to a row-major buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .element_types import Element, TensorType
from .lanes import Lanes
from .llvm_ir import Value
from .mlir import Operation

Index = tuple[Value, ...]
"""One i64 per axis; along the axis of a vector, the first lane's."""

Steps = Callable[[int], int | None]
"""The difference between neighbours along an axis (0: all the same); None when it is not known."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Buffer:
    """Row-major memory of a tensor. Narrow floats may be held as float32 (`wide`) for products."""

    address: Value
    shape: tuple[int, ...]
    element: Element
    wide: bool = False

    @property
    def stored(self) -> str:
        """LLVM's type of one element in this memory."""
        return self.element.llvm if self.wide else self.element.stored

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return 4 if self.wide and self.element.is_narrow else self.element.size


@dataclass(eq=False, kw_only=True)
class DelayedLoad:
    """A load at `pointer` that may wait for its only `user`: a store, or a product that packs it.

    `tensor` are the elements; they are read from `buffer` once that is set.
    """

    pointer: Tensor
    user: Operation
    tensor: Tensor
    buffer: Buffer | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensor:
    """A tensor value. `evaluate(index, axis, width)` emits the code of `width` elements along an axis.

    `cost` counts instructions per vector roughly; `reads` names the buffers that evaluating reads, with
    whether only at the element's own index; `natural` is the axis along which evaluating needs no gathering;
    `steps` describes integers and pointers. `prefix` booleans along one axis: if the last one holds, all do.
    """

    type: TensorType
    evaluate: Callable[[Index, int, int], Lanes]
    cost: int = 0
    reads: Mapping[Buffer, bool] = field(default_factory=dict)
    natural: int
    steps: Steps = lambda _: None
    buffer: Buffer | None = None
    prefix: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        assert self.type.shape is not None
        return self.type.shape

    @property
    def element(self) -> Element:
        """The tensor's element type."""
        return self.type.element

    @property
    def is_index(self) -> bool:
        """Whether its steps are known along every axis: it is recomputed rather than stored."""
        return all(self.steps(axis) is not None for axis in range(len(self.shape)))


def merged_reads(*tensors: Tensor, aligned: bool = True) -> dict[Buffer, bool]:
    """What expressions over `tensors` read; `aligned` False when they are read at other indices."""
    reads: dict[Buffer, bool] = {}
    for tensor in tensors:
        for buffer, own in tensor.reads.items():
            reads[buffer] = reads.get(buffer, True) and own and aligned
    return reads
