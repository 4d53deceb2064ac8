"""float64 reference of `add`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def add(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """x + y, same shape."""
    return np.asarray(x + y, dtype=np.float64)
