"""The verdict rule for one output: three conditions, met by correct images, not by planted faults.

1. Its largest error against float64 is at most twice that of the same computation in the same precision, done
   by numpy in several orders of addition, plus one unit in the last place of the largest value.
2. Each element is within the family's rounding analysis (`Bounded`).
3. No tile is scaled by more than TILE_SCALE: rounding to nearest is unbiased and averages out over a tile.

Integers and bool have no rounding: every element must be the reference's (`Exact`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from aotforge.errors import RulesError
from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, Array, DType
from aotforge.verify.tensors import Float

SLACK = 1.25
"""Factor of every bound for the second-order terms that first-order rounding analysis leaves out."""
SAME_PRECISION_FACTOR = 2.0
TILE_SCALE = 0.005
"""Largest accepted scaling of a tile: half of the one percent that must be detected."""
TILE = 16
"""Rows and columns of a tile: the smallest that matrix instructions produce."""
_SAME_PRECISION_TILE_LIMIT = 0.8
"""Condition 3 skips tiles that the same-precision results scale by more than this share of TILE_SCALE."""


def largest_error(actual: Float, value: Float) -> float:
    """The largest absolute difference; infinite where one alone is not a number, and for wrong infinities."""
    return float(_distance(actual, value).max(initial=0.0))


def _distance(actual: Float, value: Float, unit: Float | float = 1.0) -> Float:
    with np.errstate(invalid="ignore", divide="ignore"):
        same = (actual == value) | (np.isnan(actual) & np.isnan(value))
        distance = np.where(same, 0.0, np.abs(actual - value))
        ratio = np.where(distance == 0.0, 0.0, distance / unit)
    return np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A reference result and the largest error of each element."""

    value: Float
    error: Float

    def misses(self, actual: Float) -> Float:
        """Each element's error over its bound; infinite where `largest_error` is."""
        return _distance(actual, self.value, SLACK * self.error)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An output compared with its expectation. What is allowed is 1, and at most that in a correct one.

    `elements`: error of each over its bound. `error`: the largest error, `allowed`: its limit by condition 1.
    `tiles`: scaling over TILE_SCALE, 0 for those that condition 3 skips. `exact`: without conditions 1 and 3.
    """

    actual: Array
    value: Array
    elements: Float
    error: float
    allowed: float
    tiles: Float
    exact: bool = False

    @property
    def element(self) -> float:
        """The worst element."""
        return float(self.elements.max(initial=0.0))

    @property
    def tensor(self) -> float:
        """The largest error over its limit."""
        return self.error / self.allowed if self.error else 0.0

    @property
    def tile(self) -> float:
        """The worst tile."""
        return float(self.tiles.max(initial=0.0))

    @property
    def passed(self) -> bool:
        """All three conditions hold."""
        return not self.violations("output")

    def violations(self, output: str) -> tuple[str, ...]:
        """One text for each of the three conditions that does not hold."""
        texts = []
        if self.element > 1:
            wrong = np.argwhere(self.elements > 1)
            at = tuple(int(i) for i in wrong[0])
            shown, worst = ("", "") if self.exact else (".6g", f", worst {self.element:.4g} times its bound")
            texts.append(
                f"{output} is wrong in {len(wrong)} of {self.elements.size} elements{worst}; "
                f"the first at {at} is {self.actual[at]:{shown}} instead of {self.value[at]:{shown}}"
            )
        if self.tensor > 1:
            same = f"the same computation in the same precision allows {self.allowed:.4g}"
            texts.append(f"{output} errs by {self.error:.4g} where {same}")
        if self.tile > 1:
            first = tuple(int(i) for i in np.argwhere(self.tiles > 1)[0])
            at = (*first[:-2], first[-2] * TILE, first[-1] * TILE)
            texts.append(f"the tile of {output} at {at} is scaled by {self.tiles[first] * TILE_SCALE:.2%}")
        return tuple(texts)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Expectation of an output: reference with bounds, and the same computation in the same precision.

    `cut_off`: more of the latter with sums cut off (`Backend.truncates_sums`); None without a matrix product.
    `defined`: the elements that have a right result (None: all); others are not compared.
    """

    bounded: Bounded
    same_precision: Sequence[Float]
    dtype: DType
    cut_off: Callable[[], Sequence[Float]] | None = None
    defined: npt.NDArray[np.bool_] | None = None

    @cached_property
    def with_cut_off_sums(self) -> Expected:
        """The expectation of hardware whose matrix units cut sums off; other sums may be rounded."""
        if self.cut_off is None:
            return self
        return replace(self, same_precision=[*self.same_precision, *self.cut_off()], cut_off=None)

    def compare(self, actual: Float) -> Comparison:
        """Compare a result. Raises RulesError for unusable bounds and same-precision results."""
        if not (np.isfinite(self.bounded.error).all() and (self.bounded.error >= 0).all()):
            # every result would be within them
            raise RulesError(
                "a bound is infinite, negative or not a number",
                hint="correct the bounds in cases.py of the family",
            )
        actual = self._compared(actual)
        return Comparison(
            actual=actual,
            value=self.bounded.value,
            elements=self.bounded.misses(actual),
            error=self._error(actual),
            allowed=self._allowed,
            tiles=np.where(self._distinguishable, self._scales(actual) / TILE_SCALE, 0.0),
        )

    def _compared(self, actual: Float) -> Float:
        """A result with the right value where none is defined."""
        if self.defined is None or actual.shape != self.bounded.value.shape:
            return actual
        return np.where(self.defined, actual, self.bounded.value)

    @property
    def is_informative(self) -> bool:
        """A finite number is not zero: an image that computes nothing may leave zeros, too."""
        value = self.bounded.value
        return bool((np.isfinite(value) & (value != 0)).any())

    @cached_property
    def _allowed(self) -> float:
        worst = max(self._error(self._compared(one)) for one in self.same_precision)
        if not math.isfinite(worst):
            raise RulesError(
                "the same computation in the same precision is not finite, or of another shape, "
                "where the reference is finite",
                hint="correct same_precision_reference.py of the family",
            )
        finite = np.abs(self.bounded.value[np.isfinite(self.bounded.value)])
        return SAME_PRECISION_FACTOR * worst + unit_in_last_place(float(finite.max(initial=0.0)), self.dtype)

    @cached_property
    def _distinguishable(self) -> Float:
        """Tiles that are not zero and that rounding alone does not scale as much."""
        by_rounding = np.stack([self._scales(one) for one in self.same_precision]).max(axis=0)
        value = np.where(np.isfinite(self.bounded.value), self.bounded.value, 0.0)
        limit = _SAME_PRECISION_TILE_LIMIT * TILE_SCALE
        return np.asarray((by_rounding <= limit) & (_tile_sums(value**2) > 0))

    def _error(self, actual: Float) -> float:
        value = self.bounded.value
        return largest_error(actual, value) if actual.shape == value.shape else math.inf

    def _scales(self, actual: Float) -> Float:
        """Scaling of each tile by least squares, minus 1. Elements that are not numbers are left out."""
        usable = np.isfinite(self.bounded.value) & np.isfinite(actual)
        value = np.where(usable, self.bounded.value, 0.0)
        products = _tile_sums(value * np.where(usable, actual, 0.0))
        energy = _tile_sums(value * value)
        scales = np.where(energy > 0, products / np.where(energy > 0, energy, 1.0), 1.0)
        return np.asarray(np.abs(scales - 1.0))


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Expectation of an output of integers or bool: every element is that of `value`."""

    value: Array

    def compare(self, actual: Array) -> Comparison:
        """Compare a result. Elements that differ are infinitely wrong."""
        if actual.shape != self.value.shape:
            raise RulesError(
                f"an exact output has the shape {actual.shape}, its expectation {self.value.shape}",
                hint="correct cases.py of the family",
            )
        wrong = np.where(actual == self.value, 0.0, np.inf)
        nothing = np.zeros((1, 1))
        return Comparison(
            actual=actual, value=self.value, elements=wrong, error=0.0, allowed=0.0, tiles=nothing, exact=True
        )

    @property
    def is_informative(self) -> bool:
        """An element is not zero: an image that computes nothing may leave zeros, too."""
        return bool(np.any(self.value != 0))


def unit_in_last_place(value: float, dtype: DType) -> float:
    """The distance from |value| to the next larger number of the type, subnormal numbers included."""
    if value == 0:
        return 2 * SMALLEST[dtype]
    # frexp's exponent is one more than that of the leading bit; EPSILON is half a unit of 1.0
    return max(math.ldexp(EPSILON[dtype], math.frexp(value)[1]), 2 * SMALLEST[dtype])


def _tile_sums(x: Float) -> Float:
    """Sums over tiles of the last two axes; the last row and column of tiles may be smaller."""
    x = np.atleast_2d(x)
    rows, columns = (-n % TILE for n in x.shape[-2:])
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, columns)])
    height, width = (n // TILE for n in padded.shape[-2:])
    tiles = padded.reshape(*x.shape[:-2], height, TILE, width, TILE)
    return np.asarray(tiles.sum(axis=(-3, -1)), dtype=np.float64)
