"""Calls of `aotforge_add` on a device, each compared with numpy.

`python -m tests.device.add PREFIX rocm|cuda|cpu [--infiniops] [--types=A,B] [--large]` where PREFIX
has lib/libaotforge_ops.so and lib/aotriton.images. The
last line is the number of wrong calls. Exit status 77: no driver or no device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.verify.interpreter.number_formats import (
    EPSILON,
    SMALLEST,
    STORAGE,
    Array,
    DType,
    decode,
    encode,
    is_exact,
)
from tests.device.calls import Strides, beyond, run_calls, written
from tests.support.operator_library import DeviceTensor, Driver, OperatorLibrary, contiguous

FLOATS: tuple[DType, ...] = ("fp16", "bf16", "fp32")
INFINIOPS: tuple[DType, ...] = (*FLOATS, "i16", "i32", "i64", "u16", "u32", "u64")
DTYPES: tuple[DType, ...] = (*INFINIOPS, "fp64", "i8", "u8")

TABLE: tuple[tuple[tuple[int, ...], Strides, Strides, Strides], ...] = (
    ((13, 4), None, None, None),
    ((13, 4), (10, 1), (10, 1), (10, 1)),
    ((13, 4), (0, 1), None, None),
    ((13, 4, 4), None, None, None),
    ((13, 4, 4), (20, 4, 1), (20, 4, 1), (20, 4, 1)),
    ((13, 4, 4), (4, 0, 1), (0, 4, 1), None),
    ((16, 5632), None, None, None),
    ((16, 5632), (13312, 1), (13312, 1), (13312, 1)),
    ((13, 16, 2), (128, 4, 1), (0, 2, 1), (64, 4, 1)),
    ((13, 16, 2), (128, 4, 1), (2, 0, 1), (64, 4, 1)),
    ((4, 4, 5632), None, None, None),
    ((4, 4, 5632), (45056, 5632, 1), (45056, 5632, 1), (45056, 5632, 1)),
)
"""Shape and strides of input, other and out that InfiniOps' test of add has; None: contiguous."""

FURTHER: tuple[tuple[tuple[int, ...], Strides, Strides, Strides], ...] = (
    ((), None, None, None),
    ((7, 0, 3), None, None, None),
    ((33, 65), (1, 33), None, (1, 33)),
    ((33, 65), None, (1, 33), None),
    ((5, 70), (-70, 1), (70, -1), None),
    ((5, 70), None, None, (-70, -1)),
    ((4, 3, 70), (0, 70, 1), (70, 0, 0), (210, 70, 1)),
    ((2, 3, 2, 3, 2, 3, 2, 3), (1, 2, 6, 12, 36, 72, 216, 432), (432, 0, 72, 0, 12, 0, 2, 0), None),
    ((2, 2, 2, 2, 2, 2, 2, 2, 2, 2), None, (512, 256, 128, 64, 32, 16, 8, 4, 2, 1), None),
)
"""Scalars, empty tensors, other orders of axes, negative strides, eight axes that do not merge and ten that
do."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Shapes and strides of input, other and out."""

    dtype: DType
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    strides: tuple[Strides, Strides, Strides]
    alpha: float = 1.0
    skew: int = 0

    def title(self) -> str:
        """Everything that distinguishes it."""
        return f"{self.dtype} {self.shapes} {self.strides} alpha {self.alpha:g} offset {self.skew}"


def infiniops() -> Iterator[Call]:
    """The 108 calls of InfiniOps' test of add, and its newer ones: broadcasting with four alphas."""
    for at, (shape, *strides) in enumerate(TABLE):
        for dtype in INFINIOPS:
            yield _call(dtype, shape, strides, skew=at % 2)
    for left, right, result in (((3, 1), (1, 5), (3, 5)), ((5,), (2, 3, 5), (2, 3, 5))):
        for dtype in FLOATS:
            for alpha in (0.0, 0.5, 1.0, 2.0):
                yield Call(dtype=dtype, shapes=(left, right, result), strides=(None, None, None), alpha=alpha)


def others() -> Iterator[Call]:
    """The same table for the types that InfiniOps' test lacks, and further layouts for every type."""
    for at, (shape, *strides) in enumerate(TABLE):
        for dtype in DTYPES:
            if dtype not in INFINIOPS:
                yield _call(dtype, shape, strides, skew=at % 2)
    for at, (shape, *strides) in enumerate(FURTHER):
        for dtype in DTYPES:
            alphas = (1, 2, -3) if is_exact(dtype) else (1.0, 0.5, -2.0)
            yield _call(dtype, shape, strides, alpha=alphas[at % 3], skew=at % 2)


def _call(
    dtype: DType, shape: tuple[int, ...], strides: Sequence[Strides], *, alpha: float = 1.0, skew: int = 0
) -> Call:
    first, second, third = strides
    return Call(
        dtype=dtype, shapes=(shape, shape, shape), strides=(first, second, third), alpha=alpha, skew=skew
    )


def check(library: OperatorLibrary, driver: Driver, call: Call) -> str:
    """What is wrong with the call's result, or ''."""
    tensors = [
        DeviceTensor(
            driver=driver, dtype=call.dtype, shape=shape, strides=strides or contiguous(shape), seed=seed,
            skew=call.skew,
        )
        for seed, (shape, strides) in enumerate(zip(call.shapes, call.strides, strict=True))
    ]  # fmt: skip
    left, right, out = tensors
    arguments = (left.c_tensor(), right.c_tensor(), float(call.alpha), out.c_tensor())
    found = written(library, "add", tensors, *arguments)
    return found if isinstance(found, str) else compare(call, left.numbers(), right.numbers(), found)


def compare(call: Call, left: Array, right: Array, found: Array) -> str:
    """What is wrong with the numbers, or ''."""
    if is_exact(call.dtype):
        wanted = left + np.asarray(int(call.alpha)).astype(STORAGE[call.dtype]) * right
        wrong = int((wanted != found).sum())
        return f"{wrong} elements are wrong" if wrong else ""
    wide: type[Any] = np.longdouble if call.dtype == "fp64" else np.float64
    step: DType = "fp64" if call.dtype == "fp64" else "fp32"
    left, term = left.astype(wide), call.alpha * right.astype(wide)
    if call.alpha == 1 and call.dtype != "fp64":
        # one rounding after an exact sum, or the sum's own before it
        exact = decode(encode(left + term, call.dtype), call.dtype)
        twice = decode(encode((left.astype(np.float32) + term.astype(np.float32)), call.dtype), call.dtype)
        wrong = int(((found != exact) & (found != twice)).sum())
        return f"{wrong} elements are not the rounded sum" if wrong else ""
    bound = (
        EPSILON[call.dtype] * np.abs(left + term)
        + 3 * EPSILON[step] * (np.abs(left) + np.abs(term))
        + SMALLEST[call.dtype]
    )
    return beyond(found, left + term, bound)


def main(prefix: Path, vendor: str, *flags: str) -> int:
    """The exit status of `run_calls`."""
    wanted = infiniops() if "--infiniops" in flags else chain(infiniops(), others())
    listed = [flag.removeprefix("--types=").split(",") for flag in flags if flag.startswith("--types=")]
    chosen = (call for call in wanted if not listed or call.dtype in listed[0])
    return run_calls(prefix, vendor, flags, chosen, check)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
