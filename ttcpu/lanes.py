"""A run of consecutive elements of a tensor: a number for all lanes, a number and a step, or a vector.

Addresses keep their form, so that a load knows at compile time whether its lanes are neighbours in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from .element_types import Element
from .llvm_ir import Builder, Value, integer, lanes_of, vector, vector_type


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """`width` elements: a scalar `value` for all lanes, or a vector of them.

    With `step`, lane i is `value` + i `step`, for pointers in numbers of pointees.
    """

    element: Element
    width: int
    value: Value
    step: Value | None = None

    @property
    def is_vector(self) -> bool:
        """Whether each lane has a value of its own that no step describes."""
        return self.step is None and self.value.type.startswith("<")

    @property
    def is_uniform(self) -> bool:
        """One value for all lanes."""
        return self.step is None and not self.is_vector

    @property
    def is_contiguous(self) -> bool:
        """Pointers to neighbours in memory."""
        return self.step is not None and self.step.constant == 1

    def vector(self, b: Builder) -> Value:
        """The lanes as an LLVM vector; a scalar for a width of 1."""
        if self.is_vector or self.width == 1:
            return self.value
        start = b.splat(self.value, self.width)
        if self.step is None:
            return start
        if self.element.kind == "ptr":
            assert self.element.pointee is not None
            return b.address(start, self.element.pointee.stored, _multiples(b, self.step, self.width))
        return b.add(start, _multiples(b, self.step, self.width))


def uniform(element: Element, width: int, scalar: Value) -> Lanes:
    """The same scalar in every lane."""
    return Lanes(element=element, width=width, value=scalar)


def full(element: Element, vector_value: Value) -> Lanes:
    """The lanes of an LLVM vector."""
    return Lanes(element=element, width=lanes_of(vector_value.type), value=vector_value)


def arithmetic(element: Element, width: int, start: Value, step: Value) -> Lanes:
    """start, start + step, ...: uniform for a step of 0, a scalar for a width of 1."""
    if step.constant == 0 or width == 1:
        return uniform(element, width, start)
    return Lanes(element=element, width=width, value=start, step=step)


def _multiples(b: Builder, step: Value, width: int) -> Value:
    if step.constant is not None:
        return vector([integer(step.constant * lane, step.type) for lane in range(width)])
    numbers = vector([integer(lane, step.type) for lane in range(width)])
    return b.mul(b.splat(step, width), numbers)


def step_of(lanes: Lanes, type_: str) -> Value:
    """The step; zero of `type_` for uniform lanes."""
    return lanes.step or integer(0, type_)


def vector_llvm(element: Element, width: int) -> str:
    """LLVM's type of `width` elements in registers."""
    return vector_type(element.llvm, width)
