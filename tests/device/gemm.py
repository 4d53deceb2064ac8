"""Calls of `aotforge_gemm` on a device, each compared with float64.

`python -m tests.device.gemm PREFIX rocm|cuda|cpu [--few]` where PREFIX has lib/libaotforge_ops.so
and lib/aotriton.images. The
last line is the number of wrong calls. Exit status 77: no driver or no device.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from ctypes import c_int
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, Array, DType
from kernels.gemm.rules import ACTIVATIONS
from tests.device.calls import beyond, run_calls, written
from tests.support.operator_library import DeviceTensor, Driver, OperatorLibrary, contiguous

DTYPES: tuple[DType, ...] = ("fp16", "bf16", "fp32")
Shape = tuple[int, ...]
_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: tuple[Callable[[Array], Array], ...] = (
    lambda x: x,
    lambda x: np.maximum(x, 0),
    lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    lambda x: x / (1 + np.exp(-x)),
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Shapes of input, weight, bias (None: there is none) and out; strides of those that are not contiguous,
    by place."""

    dtype: DType
    shapes: tuple[Shape, Shape, Shape | None, Shape]
    strides: tuple[tuple[int, Shape], ...] = ()
    activation: int = 0
    skew: int = 0

    def title(self) -> str:
        """Everything that distinguishes it."""
        return f"{self.dtype} {self.shapes} {self.strides} {ACTIVATIONS[self.activation]} offset {self.skew}"

    def tensor(self, driver: Driver, place: int) -> DeviceTensor | None:
        """A new tensor."""
        shape = self.shapes[place]
        if shape is None:
            return None
        strides = dict(self.strides).get(place) or contiguous(shape)
        return DeviceTensor(
            driver=driver, dtype=self.dtype, shape=shape, strides=strides, seed=place, skew=self.skew
        )


def _shapes(
    rows: int, columns: int, inner: int, *, bias: bool = True
) -> tuple[Shape, Shape, Shape | None, Shape]:
    return (rows, inner), (inner, columns), (columns,) if bias else None, (rows, columns)


def calls(*, few: bool) -> Iterator[Call]:
    """Sizes around the tiles, a transposed weight and other strides, batches that merge with rows and that do
    not."""
    sizes = [(1, 8, 8), (17, 72, 40), (130, 264, 64)]
    if not few:
        sizes += [
            (1, 1, 1),
            (16, 4096, 512),
            (64, 64, 64),
            (65, 67, 33),
            (300, 520, 1000),
            (1100, 1032, 200),
            (2048, 1024, 256),
        ]
    for dtype in DTYPES[: 1 if few else 3]:
        for at, (rows, columns, inner) in enumerate(sizes):
            shapes = _shapes(rows, columns, inner, bias=at % 3 != 2)
            yield Call(dtype=dtype, shapes=shapes, activation=at % 4, skew=at % 2)
            yield Call(dtype=dtype, shapes=shapes, activation=(at + 1) % 4, strides=((1, (1, inner)),))
        yield from _others(dtype)


def _others(dtype: DType) -> Iterator[Call]:
    yield Call(dtype=dtype, shapes=_shapes(40, 24, 0), activation=2)
    yield Call(dtype=dtype, shapes=_shapes(0, 24, 16))
    yield Call(dtype=dtype, shapes=_shapes(40, 24, 16), strides=((0, (1, 40)), (3, (1, 48))), activation=3)
    yield Call(dtype=dtype, shapes=_shapes(40, 24, 16), strides=((0, (-32, 1)), (1, (48, 1)), (3, (32, 1))))
    linear = ((2, 3, 20, 40), (40, 72), (72,), (2, 3, 20, 72))
    yield Call(dtype=dtype, shapes=linear, activation=1)
    yield Call(dtype=dtype, shapes=linear, strides=((0, (2400, 40, 120, 1)),), activation=2)
    yield Call(dtype=dtype, shapes=((3, 20, 40), (2, 1, 40, 24), (2, 1, 24), (2, 3, 20, 24)), activation=3)


def reference(call: Call, x: Array, weight: Array, bias: Array | None) -> tuple[Array, Array]:
    """The result in float64, and the bound of its error in float32's roundings."""
    total, size = x @ weight, np.abs(x) @ np.abs(weight)
    if bias is not None:
        total, size = total + bias[..., None, :], size + np.abs(bias[..., None, :])
    return _FUNCTIONS[call.activation](total), 1.13 * (x.shape[-1] + 12) * size


def check(library: OperatorLibrary, driver: Driver, call: Call) -> str:
    """What is wrong with the call's result, or ''."""
    tensors = [call.tensor(driver, place) for place in range(4)]
    x, weight, bias, _ = tensors
    assert x is not None and weight is not None
    given = [tensor.c_tensor() if tensor else None for tensor in tensors]
    found = written(library, "gemm", tensors, *given[:3], c_int(call.activation), given[3])
    if isinstance(found, str):
        return found
    wanted, rounding = reference(call, x.numbers(), weight.numbers(), bias.numbers() if bias else None)
    bound = EPSILON[call.dtype] * np.abs(wanted) + EPSILON["fp32"] * rounding + SMALLEST[call.dtype]
    return beyond(found.astype(np.float64), wanted, bound)


def main(prefix: Path, vendor: str, *flags: str) -> int:
    """The exit status of `run_calls`."""
    return run_calls(prefix, vendor, flags, calls(few="--few" in flags), check)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
