"""How far a correct kernel may be from its float64 reference, element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotforge.verify.tensors import Float
from aotforge.virtual_gpu.interpreter.number_formats import DType

SLACK = 1.25
"""For the second-order terms that first-order rounding analysis leaves out."""
FLOAT32 = 2.0**-24
"""float32's relative rounding error."""
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
