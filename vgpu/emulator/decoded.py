"""Operands and instructions as the assembly text has them, before they are bound to the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Space = Literal["none", "scalar", "vector", "constant", "status", "label"]
"""`vector` counts AGPRs from 256; `status` is SCC (0), VCCZ (1) or EXECZ (2); `none` is `off`."""

ModifierValue = int | tuple[int, ...] | str


@dataclass(frozen=True, kw_only=True)
class Operand:
    """`words` registers from `index` on, or a constant: `integer` or `real`; `hexadecimal` as it is spelled
    (a literal's bits, whatever the type). `half`: .l (0), .h (1). `symbol`: the linker sets its bits in the
    instruction's literal."""

    text: str
    space: Space
    index: int = 0
    words: int = 1
    integer: int = 0
    real: float | None = None
    hexadecimal: bool = False
    neg: bool = False
    abs: bool = False
    sext: bool = False
    half: int | None = None
    symbol: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """An instruction as written; `name` without suffix, `encoding`: e32, e64, sdwa, dpp, e64_dpp, dual or
    empty. `partner`: the second of a dual-issue pair. Addresses are bytes from the kernel's first
    instruction."""

    number: int
    text: str
    name: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, ModifierValue] = field(default_factory=dict)
    address: int = 0
    next_address: int = 0
    partner: Line | None = None

    @property
    def location(self) -> str:
        """Line number and text, for messages."""
        return f"line {self.number}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A kernel's instructions. `labels`: index of the next instruction; `fields`: `.amdhsa_` directives."""

    kernel: str
    arch: str
    lines: tuple[Line, ...]
    labels: Mapping[str, int]
    fields: Mapping[str, int]


class SourceMap(Protocol):
    """Source lines of a kernel's instructions."""

    def at(self, address: int) -> str | None:
        """`forward.py:61` for the instruction at a byte from the kernel's first one; None when unknown."""


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Faults to look for besides accesses out of bounds: `waits`: registers touched before a load into them
    was waited for; `races`: LDS bytes that two waves touch between the same barriers; `barriers`: waves at
    different ones; `uninitialised`: garbage that reaches global memory, an address, a branch or EXEC. Bytes
    of the buffers `unwritten` have no value until they are stored."""

    waits: bool = True
    races: bool = True
    barriers: bool = True
    uninitialised: bool = True
    unwritten: frozenset[str] = frozenset()

    @property
    def bits(self) -> int:
        """The mask of state.h."""
        return self.waits | self.races << 1 | self.barriers << 2 | self.uninitialised << 3
