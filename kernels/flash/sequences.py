"""Sequences of variable length inside tensors, as AOTriton 0.14's VarlenBits describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from aotforge.verify.tensors import Float

from .reference import Mask

LseLayout = Literal["HT", "TH", "rows"]
"""Packed log-sum-exp: (heads, tokens), (tokens, heads); "rows": (sequences, heads, longest), as in AOTriton 0.11."""


@dataclass(frozen=True, kw_only=True)
class Varlen:
    """Lengths of a call's sequences. `word`: the low 16 bits of VarlenBits; `gap`: unused rows before each
    sequence where the word
    has positions of its own.
    """

    word: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    gap: int = 0
    lse: LseLayout = "HT"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side's sequences. `longest` may exceed every length."""

    mode: int
    lengths: tuple[int, ...]
    longest: int
    gap: int = 0

    @property
    def stacked(self) -> bool:
        """All sequences are in one plane."""
        return bool(self.mode & 1)

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each sequence in its plane, then the end of the last one."""
        count = len(self.lengths)
        position = self.mode >> 3 & 3
        if position == 0:
            return (
                tuple(z * self.longest for z in range(count + 1))
                if self.stacked
                else (0,) * count + (self.longest,)
            )
        if not self.stacked and position == 2:
            return (self.gap,) * count + (self.gap + self.longest,)
        gap = self.gap if position == 2 else 0
        ends = accumulate((length + gap for length in self.lengths), initial=0)
        return tuple(end + gap for end in ends)

    @property
    def planes(self) -> int:
        """Size of a tensor's first axis."""
        return 1 if self.stacked else len(self.lengths)

    @property
    def rows(self) -> int:
        """Size of a tensor's third axis."""
        return self.starts[-1]

    @property
    def arrays(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """The two arrays that the mode reads."""
        counted, position = self.mode >> 1 & 3, self.mode >> 3 & 3
        lengths = {0: None, 1: tuple(accumulate(self.lengths, initial=0)), 2: self.lengths}[counted]
        return lengths, self.starts if position == 2 else None

    def place(self, z: int) -> tuple[slice, slice]:
        """Plane and rows of one sequence."""
        plane = 0 if self.stacked else z
        return slice(plane, plane + 1), slice(self.starts[z], self.starts[z] + self.lengths[z])

    def within(self) -> Mask:
        """Which rows belong to a sequence, (planes, 1, rows, 1)."""
        found = np.zeros((self.planes, 1, self.rows, 1), dtype=np.bool_)
        for z in range(len(self.lengths)):
            plane, rows = self.place(z)
            found[plane, :, rows] = True
        return found


@dataclass(frozen=True, kw_only=True)
class Part:
    """Sequences of equal lengths, of which `first` is the first: of a dense call all, else one. Indices of
    planes and rows."""

    first: int
    count: int
    queries: tuple[slice, slice]
    keys: tuple[slice, slice]
    lse: tuple[slice, slice]

    def of(self, name: str, x: Float) -> Float:
        """The part of a tensor: a view."""
        if name in {"B", "DB"}:
            return x
        planes, rows = (
            self.keys if name in {"K", "V", "DK", "DV"} else self.lse if name in {"L", "D"} else self.queries
        )
        return x[planes, :, rows]

    def all_of(self, tensors: Mapping[str, Float]) -> dict[str, Float]:
        """The part of every tensor."""
        return {name: self.of(name, x) for name, x in tensors.items()}


def parts(queries: Side, keys: Side, *, packed: bool) -> Iterator[Part]:
    """Every sequence that has queries or keys."""
    for z in range(len(queries.lengths)):
        of_queries = queries.place(z)
        lse = (slice(0, 1), of_queries[1]) if packed else (slice(z, z + 1), slice(0, queries.lengths[z]))
        yield Part(first=z, count=1, queries=of_queries, keys=keys.place(z), lse=lse)
