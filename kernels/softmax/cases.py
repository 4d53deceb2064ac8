"""Calls of softmax: rows around the blocks, columns apart, batch axes in one and in several orders, elements
of -inf."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from aotforge.verify.calls import Calls, Tensor, Total
from aotforge.verify.interpreter.number_formats import Array, DType
from aotforge.verify.invocation import Case
from aotforge.verify.tensors import Layout


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normally distributed numbers, a few of them -inf; none of the first of each axis."""
    numbers = rng.standard_normal(shape) * 3
    masked = rng.random(shape) < 0.05
    masked[np.logical_or.reduce([index == 0 for index in np.indices(shape)])] = False
    return np.where(masked, -np.inf, numbers)


def _softmax(x: Array, total: Total, axis: int) -> Array:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(power / total(power, axis))


def _size(x: Array, total: Total, axis: int) -> Array:
    """The result in units of its error: an exponent's rounding weighs the more the further below the maximum
    it is."""
    below = x.max(axis=axis, keepdims=True) - x
    return _softmax(x, total, axis) * (1 + np.where(np.isinf(below), 0, below))


def _call(columns: int, *batch: int) -> dict[str, int]:
    """Sizes by name; batch axes from the outermost in."""
    sizes = {f"size_{axis}": size for axis, size in enumerate(reversed((1, 1, 1, 1, *batch)[-4:]))}
    return {**sizes, "n": prod(batch), "columns": columns}


def _calls(axis: int, axes: tuple[str | int, ...], **options: Any) -> Calls:
    """Calls on tensors stored with these axes; the softmax is along `axis` of them."""

    def tensor(name: str) -> Tensor:
        strides = {f"stride_{name}_{str(one).removeprefix('size_')}": at for at, one in enumerate(axes[:5])}
        if axis == -1:
            del strides[f"stride_{name}_columns"]
        return Tensor(shape=axes, strides=strides, draw=_drawn)

    return Calls(
        compute=lambda tensors, values, total: {"out": _softmax(tensors["input"], total, axis)},
        magnitude=lambda tensors, values, total: {"out": _size(tensors["input"], total, axis)},
        inputs={"input": tensor("input")},
        outputs={"out": tensor("out")},
        # a sum of the powers, a quotient and the roundings of an exponent
        roundings=lambda shape: shape["columns"] / 2 + 16,
        title="{n} rows of {columns}",
        **options,
    )


_BY_KERNEL: Mapping[str, Calls] = {
    "softmax_rows": _calls(
        -1,
        ("size_3", "size_2", "size_1", "size_0", "columns"),
        # blocks have 64, 128, 512, 1024 to 16384 columns, and 32, 16, 8, 4, 2 rows or one; those of longer
        # rows 4096 columns
        shapes=[
            _call(1, 5),
            _call(8, 17),
            _call(64, 4, 9),
            _call(100, 2, 3, 2, 2),
            _call(128, 3, 7),
            _call(136, 9),
            _call(511, 3, 3),
            _call(520, 3),
            _call(1024, 5),
            _call(1027, 3),
            _call(2048, 1),
            _call(2056, 2),
            _call(4104, 1),
            _call(8192, 1),
            _call(8200, 2),
            _call(16392, 1),
            _call(16387, 1),
        ],
        typical=_call(1024, 64),
        layouts={
            "rows of 8 apart": Layout(row_padding=8),
            "axes exchanged": Layout(order=(1, 3, 0, 2), row_padding=8),
        },
    ),
    "softmax_columns": _calls(
        3,
        ("size_3", "size_2", "size_1", "columns", "size_0", 1),
        # blocks have 64 columns of 64 rows
        shapes=[
            _call(1, 3),
            _call(5, 70),
            _call(65, 2, 3, 2, 8),
            _call(40, 2, 64),
            _call(100, 72),
            _call(3, 0),
        ],
        typical=_call(1024, 64),
        layouts={
            "columns of 8 apart": Layout(spare_rows=8),
            "axes exchanged": Layout(order=(1, 3, 4, 0, 2), row_padding=1),
        },
    ),
}
SHAPE = _BY_KERNEL["softmax_rows"].typical


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """All calls of one functional."""
    return _BY_KERNEL[kernel].cases(kernel, keys)


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given shape on aligned tensors."""
    return _BY_KERNEL[kernel].shaped(kernel, keys, shape)
