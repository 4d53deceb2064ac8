"""Names of Triton's types for the catalogue, over the number formats that the verifier uses."""

from __future__ import annotations

from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from aotforge.verify.interpreter import number_formats
from aotforge.verify.interpreter.number_formats import EPSILON as _EPSILON
from aotforge.verify.interpreter.number_formats import STORAGE, DType

Array = npt.NDArray[Any]

INTEGERS = tuple(name for name in get_args(number_formats.ExactType) if name != "i1")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
FP8 = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
LANGUAGE = {
    "i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
        "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
        "fp8e5": "float8e5",
    "fp8e4nv": "float8e4nv", "fp8e4b8": "float8e4b8", "fp8e5b16": "float8e5b16",
}  # fmt: skip
"""Names in `triton.language` by their names in signatures."""
EPSILON: dict[str, float] = {str(name): value for name, value in _EPSILON.items()}


def storage(kind: str) -> np.dtype[Any]:
    """The numpy type that holds a type's bits."""
    return STORAGE[cast("DType", kind)]


def decode(stored: Array, kind: str) -> Array:
    """The numbers with these bits: float64 of floats, integers as they are; exact."""
    return number_formats.decode(stored, cast("DType", kind))


def encode(values: Array, kind: str) -> Array:
    """Numbers to the nearest of a type, ties to even; integers wrap."""
    return number_formats.encode(values, cast("DType", kind))


def rounded(values: Array, kind: str) -> Array:
    """The numbers after one rounding to a type."""
    return decode(encode(values, kind), kind)
