"""How far a correct kernel may be from its float64 reference, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotforge.interpret.numbers import DType
from aotforge.verify.tensors import Float

SLACK = 1.25
"""For the second-order terms that first-order rounding analysis leaves out."""
FLOAT32 = 2.0**-24
"""float32's relative rounding error."""
TILE_SCALE = 0.005
"""How far a tile may be scaled as a whole. bfloat16's bound of one element is as wide as one percent, but rounding to
nearest is unbiased: over a tile of a correct result it averages out."""
_TILE = 16
SMALLEST: dict[DType, float] = {"fp16": 2.0**-25, "bf16": 2.0**-134, "fp32": 2.0**-150}
"""Half the distance between subnormal numbers: the absolute part of a rounding error."""


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A reference result and the largest error of each element."""

    value: Float
    error: Float

    def misses(self, actual: Float) -> Float:
        """Where `actual` is too far away, by how many times the bound; not-a-number and wrong infinities are
        infinitely far.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            distance = np.where(actual == self.value, 0.0, np.abs(actual - self.value))
            ratio = np.where(distance == 0.0, 0.0, distance / (SLACK * self.error))
        return np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)

    def rescaled(self, actual: Float) -> Float:
        """By how much each tile of 16 rows and columns is scaled as a whole, in multiples of TILE_SCALE; at most 1 is right.

        The scale is that of least squares. Tiles whose bound exceeds a twenty-fifth of their values (both in the 2-norm) give
        0: there, rounding may do as much.
        """
        usable = np.isfinite(self.value) & np.isfinite(actual)
        value = np.where(usable, self.value, 0.0)
        other = np.where(usable, actual, 0.0)
        energy = _tile_sums(value * value)
        slack = _tile_sums(np.where(usable, SLACK * self.error, 0.0) ** 2)
        judged = (energy > 0) & (slack <= energy / 25**2)
        off = np.abs(_tile_sums(value * other) / np.where(judged, energy, 1.0) - 1.0)
        return np.where(judged, off / TILE_SCALE, 0.0)


def _tile_sums(x: Float) -> Float:
    rows, columns = (-n % _TILE for n in x.shape[-2:])
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, columns)])
    height, width = (n // _TILE for n in padded.shape[-2:])
    tiles = padded.reshape(*x.shape[:-2], height, _TILE, width, _TILE)
    return np.asarray(tiles.sum(axis=(-3, -1)), dtype=np.float64)
