"""Calls of the functions of rows, rms_norm and softmax, on a device, each compared with float64.

`python -m tests.device.rows PREFIX rocm|cuda|cpu [--only FUNCTION] [--few]` where PREFIX has
lib/libaotforge_ops.so and lib/aotriton.images. The
last line is the number of wrong calls. Exit status 77: no driver or no device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, Array, DType
from tests.device.calls import Strides, beyond, run_calls, written
from tests.support.operator_library import DeviceTensor, Driver, OperatorLibrary, contiguous

DTYPES: tuple[DType, ...] = ("fp16", "bf16", "fp32")
EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Call:
    """A function, its tensors' shape and strides, and the axis of its rows."""

    function: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[Strides, Strides] = (None, None)
    axis: int = -1
    skew: int = 0

    def title(self) -> str:
        """Everything that distinguishes it."""
        return f"{self.function} {self.dtype} {self.shape} {self.strides} axis {self.axis} offset {self.skew}"


def rms_norm(x: Array, weight: Array) -> tuple[Array, Array]:
    """The result in float64, and the bound of its error in float32's roundings."""
    result = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS) * weight
    return result, (x.shape[-1] / 2 + 8) * np.abs(result)


def softmax(x: Array, weight: Array) -> tuple[Array, Array]:
    """The result in float64, and the bound of its error in float32's roundings."""
    below = x.max(axis=-1, keepdims=True) - x
    power = np.exp(-below)
    result = power / power.sum(axis=-1, keepdims=True)
    return result, (x.shape[-1] / 2 + 16) * result * (1 + below)


REFERENCES: Mapping[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "rms_norm": rms_norm,
    "softmax": softmax,
}


def calls(function: str, *, few: bool) -> Iterator[Call]:
    """Widths around the blocks, batch axes that do not merge, tensors that are not aligned."""
    all_widths = (1, 64, 127, 128, 300, 512, 1000, 1024, 1025, 2048, 4096, 4100, 8192, 8193, 12288, 33000)
    widths = (1, 100, 2049) if few else all_widths
    for dtype in DTYPES[: 1 if few else 3]:
        for width in widths:
            yield Call(function=function, dtype=dtype, shape=(3, width), skew=width % 2)
            yield Call(function=function, dtype=dtype, shape=(5, width), strides=((width + 8, 1), None))
        yield Call(function=function, dtype=dtype, shape=(0, 64))
        yield Call(function=function, dtype=dtype, shape=(4, 0))
        yield Call(function=function, dtype=dtype, shape=(70,))
        yield Call(
            function=function, dtype=dtype, shape=(2, 3, 4, 5, 72), strides=((1440, 8640, 72, 288, 1), None)
        )
        yield Call(function=function, dtype=dtype, shape=(6, 40), strides=((-40, 1), (48, 1)))
        if function == "softmax":
            yield from _columns(function, dtype)


def _columns(function: str, dtype: DType) -> Iterator[Call]:
    """Along axes that are not the innermost in memory."""
    yield Call(function=function, dtype=dtype, shape=(33, 70), axis=0)
    yield Call(function=function, dtype=dtype, shape=(40, 128), axis=-2, skew=1)
    yield Call(function=function, dtype=dtype, shape=(2, 5, 3, 48), axis=1, strides=(None, (1, 2, 10, 30)))
    yield Call(function=function, dtype=dtype, shape=(6, 40), strides=((80, -2), None))
    yield Call(function=function, dtype=dtype, shape=(64, 100), axis=0, strides=((1, 64), None))


def check(library: OperatorLibrary, driver: Driver, call: Call) -> str:
    """What is wrong with the call's result, or ''."""
    row = call.shape[-1:]
    layouts = zip(
        (call.shape, row, call.shape), (call.strides[0], None, call.strides[1]), (0, 2, 1), strict=True
    )
    x, weight, out = tensors = [
        DeviceTensor(
            driver=driver, dtype=call.dtype, shape=shape, strides=strides or contiguous(shape), seed=seed,
            skew=call.skew,
        )
        for shape, strides, seed in layouts
    ]  # fmt: skip
    given = (call.axis,) if call.function == "softmax" else (weight.c_tensor(), EPS)
    found = written(library, call.function, tensors, x.c_tensor(), *given, out.c_tensor())
    if isinstance(found, str) or not found.size:
        return found if isinstance(found, str) else ""
    wanted, rounding = REFERENCES[call.function](np.moveaxis(x.numbers(), call.axis, -1), weight.numbers())
    bound = EPSILON[call.dtype] * np.abs(wanted) + EPSILON["fp32"] * rounding + SMALLEST[call.dtype]
    return beyond(np.moveaxis(found.astype(np.float64), call.axis, -1), wanted, bound)


def main(prefix: Path, vendor: str, *flags: str) -> int:
    """The exit status of `run_calls`."""
    wanted = [flags[flags.index("--only") + 1]] if "--only" in flags else list(REFERENCES)
    made = chain.from_iterable(calls(function, few="--few" in flags) for function in wanted)
    return run_calls(prefix, vendor, flags, made, check)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
