"""Rules of functions with an optional input, an option, or batch axes that join a core axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aotforge.rules import Function, Parameter


@dataclass(frozen=True, kw_only=True)
class OptionalInput(Parameter):
    """An input that callers may leave out, as a null pointer.

    Operators have its address, 0 without it, and as `has_<name>` (i32) 1 with it.
    """

    kind: Literal["input"] = "input"


@dataclass(frozen=True, kw_only=True)
class Option(Parameter):
    """One of `options`: in C an int with an enumerator each, in operator values its place among them (i32)."""

    kind: Literal["number"] = "number"
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class IndependentAxes(Function):
    """A function whose results along the core axes `independent` do not depend on each other.

    Batch axes that extend such an axis, and along which tensors without it are broadcast, are merged into it.
    """

    independent: tuple[str, ...]
