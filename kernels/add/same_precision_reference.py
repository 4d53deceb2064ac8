"""Same-precision reference of the sum: formed in float32, rounded once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aotforge.virtual_gpu.interpreter.number_formats import DType, decode, encode


def add(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], dtype: DType) -> npt.NDArray[np.float64]:
    """What a kernel would store, same shape."""
    return decode(encode(x.astype(np.float32) + y.astype(np.float32), dtype), dtype)
