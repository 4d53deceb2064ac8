"""The verdict rule for one output tensor: three conditions, each of which a right image meets and planted faults do not.

1. Its largest error against float64 is at most twice the largest error of the same computation in the same precision, done by
   numpy in several orders of addition (the peers), plus one unit in the last place of the largest value.
2. Each element is within the family's rounding analysis (`Bounded`).
3. No tile is scaled as a whole by more than TILE_SCALE: one percent is within bfloat16's bound of a single element, while
   rounding to nearest is unbiased, so that over a tile of a correct result it averages out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aotforge.errors import RulesError
from aotforge.verify.bounds import SMALLEST, Bounded
from aotforge.verify.tensors import Float
from aotforge.virtual_gpu.interpreter.number_formats import EPSILON, DType

SAME_PRECISION_FACTOR = 2.0
TILE_SCALE = 0.005
"""By how much a tile may be scaled as a whole: half of the one percent that must be seen."""
TILE = 16
"""Rows and columns of a tile that is looked at: the smallest that matrix instructions make."""
_SAME_PRECISION_TILE_LIMIT = 0.8
"""A tile that the peers themselves scale by more than this share of TILE_SCALE is left to the other conditions: sums that
cancel, or that hang on a single rounding."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An output against what was expected, in multiples of what is allowed: all at most 1 in a right one.

    `elements` by the bound of each, `error` the largest error (absolute) and `allowed` what the peers allow, `tiles` by
    TILE_SCALE (0 where a tile cannot be told apart).
    """

    elements: Float
    error: float
    allowed: float
    tiles: Float

    @property
    def element(self) -> float:
        """The worst element."""
        return float(self.elements.max(initial=0.0))

    @property
    def tensor(self) -> float:
        """The largest error by what the peers allow."""
        return self.error / self.allowed if self.error else 0.0

    @property
    def tile(self) -> float:
        """The worst tile."""
        return float(self.tiles.max(initial=0.0))

    @property
    def passed(self) -> bool:
        """All three conditions hold."""
        return max(self.element, self.tensor, self.tile) <= 1


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What an output of type `dtype` has to be: reference and bounds, and what the peers computed, all in one shape."""

    bounded: Bounded
    same_precision: Sequence[Float]
    dtype: DType

    def compare(self, actual: Float) -> Comparison:
        """Judge a result. Raises RulesError for peers and bounds that are of no use."""
        if not (np.isfinite(self.bounded.error).all() and (self.bounded.error >= 0).all()):
            # every result would be within them
            raise RulesError(
                "a bound is infinite, negative or not a number",
                hint="correct the bounds in cases.py of the family",
            )
        return Comparison(
            elements=self.bounded.misses(actual),
            error=self._error(actual),
            allowed=self._allowed,
            tiles=np.where(self._distinguishable, self._scales(actual) / TILE_SCALE, 0.0),
        )

    @property
    def is_informative(self) -> bool:
        """There is a number other than zero to be right about: zeros are what an image that computes nothing may leave too."""
        value = self.bounded.value
        return bool((np.isfinite(value) & (value != 0)).any())

    @cached_property
    def _allowed(self) -> float:
        worst = max(self._error(peer) for peer in self.same_precision)
        if not math.isfinite(worst):
            raise RulesError(
                "the same computation in the same precision is infinite, not a number or of another shape where the reference is finite",
                hint="correct same_precision_reference.py of the family",
            )
        finite = np.abs(self.bounded.value[np.isfinite(self.bounded.value)])
        return SAME_PRECISION_FACTOR * worst + unit_in_last_place(float(finite.max(initial=0.0)), self.dtype)

    @cached_property
    def _distinguishable(self) -> Float:
        """Tiles that have something to scale and that rounding alone does not scale as much."""
        honest = (
            np.stack([self._scales(peer) for peer in self.same_precision]).max(axis=0)
            <= _SAME_PRECISION_TILE_LIMIT * TILE_SCALE
        )
        return np.asarray(honest & (self._energy > 0))

    @cached_property
    def _energy(self) -> Float:
        return _tile_sums(np.where(np.isfinite(self.bounded.value), self.bounded.value, 0.0) ** 2)

    def _error(self, actual: Float) -> float:
        value = self.bounded.value
        if actual.shape != value.shape:
            return math.inf
        with np.errstate(invalid="ignore"):
            distance = np.where(actual == value, 0.0, np.abs(actual - value))
        return float(np.nan_to_num(distance, nan=np.inf, posinf=np.inf).max(initial=0.0))

    def _scales(self, actual: Float) -> Float:
        """By how much each tile is scaled as a whole, by least squares. Elements that are no numbers have no part in it."""
        usable = np.isfinite(self.bounded.value) & np.isfinite(actual)
        value = np.where(usable, self.bounded.value, 0.0)
        products = _tile_sums(value * np.where(usable, actual, 0.0))
        energy = _tile_sums(value * value)
        return np.asarray(
            np.abs(np.where(energy > 0, products / np.where(energy > 0, energy, 1.0), 1.0) - 1.0)
        )


def unit_in_last_place(value: float, dtype: DType) -> float:
    """The distance from |value| to the next larger number of the type; among subnormal numbers theirs."""
    if value == 0:
        return 2 * SMALLEST[dtype]
    # frexp's exponent is one more than that of the leading bit; EPSILON is half a unit of 1.0
    return max(math.ldexp(EPSILON[dtype], math.frexp(value)[1]), 2 * SMALLEST[dtype])


def _tile_sums(x: Float) -> Float:
    """Sums over tiles of the last two axes; the last row and column of tiles may be smaller."""
    rows, columns = (-n % TILE for n in x.shape[-2:])
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, columns)])
    height, width = (n // TILE for n in padded.shape[-2:])
    tiles = padded.reshape(*x.shape[:-2], height, TILE, width, TILE)
    return np.asarray(tiles.sum(axis=(-3, -1)), dtype=np.float64)
