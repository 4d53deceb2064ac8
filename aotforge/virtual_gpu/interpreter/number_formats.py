"""Numbers as kernels store them, in numpy: fp16, bf16 (as uint16 bits) and fp32."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

DType = Literal["fp16", "bf16", "fp32"]
Array = npt.NDArray[Any]

EPSILON: dict[DType, float] = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24}
"""Largest relative error of rounding to nearest (half the distance from 1 to the next number)."""
SMALLEST: dict[DType, float] = {"fp16": 2.0**-25, "bf16": 2.0**-134, "fp32": 2.0**-150}
"""Half the distance between subnormal numbers: the absolute part of a rounding error."""

STORAGE: dict[DType, np.dtype[Any]] = {"fp16": np.dtype("f2"), "bf16": np.dtype("u2"), "fp32": np.dtype("f4")}


def bf16_bits(values: Array) -> npt.NDArray[np.uint16]:
    """float32 values rounded to nearest even, ties included; NaN stays NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(single), quiet, rounded).astype(np.uint16).reshape(np.shape(values))


def bf16_values(bits: Array) -> npt.NDArray[np.float32]:
    """The numbers with these bfloat16 bits; exact."""
    wide = np.ascontiguousarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def encode(values: Array, dtype: DType) -> Array:
    """Numbers as a kernel would find them in memory."""
    if dtype == "bf16":
        return bf16_bits(values)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(STORAGE[dtype])


def decode(stored: Array, dtype: DType) -> npt.NDArray[np.float64]:
    """The numbers in memory as float64; exact."""
    if dtype == "bf16":
        return bf16_values(stored).astype(np.float64)
    return np.asarray(stored).astype(np.float64)
