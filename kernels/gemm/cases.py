"""Calls of the matrix product: tiles and their remainders, every activation, with and without bias, batches
in several orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aotforge.verify.calls import Calls, Tensor, Total, Values
from aotforge.verify.interpreter.number_formats import Array
from aotforge.verify.invocation import Case
from aotforge.verify.tensors import Layout

from .operators import CORES, TENSORS

_CHUNK = 2**22
"""Products that are in memory at once."""
_BATCH = ("size_3", "size_2", "size_1", "size_0")
_erf = np.vectorize(math.erf, otypes=[np.float64])

Activation = Callable[[Array], Array]


def _gelu(x: Array) -> Array:
    return np.asarray(
        x * (1 + _erf(x.astype(np.float64) * math.sqrt(0.5)).astype(x.dtype)) * x.dtype.type(0.5)
    )


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


_ACTIVATIONS: tuple[Activation, ...] = (np.asarray, lambda x: np.maximum(x, 0), _gelu, _silu)


def _matrix_product(x: Array, weight: Array, total: Total) -> Array:
    """In the order of additions that `total` has; in float64, where all are alike, in any; 0 without
    products."""
    if x.dtype == np.float64 or not x.shape[-1]:
        return np.asarray(x @ weight)
    rows = max(1, _CHUNK // max(1, prod(weight.shape)))
    parts = [
        total(x[..., at : at + rows, :, None] * weight[..., None, :, :], -2)[..., 0, :]
        for at in range(0, x.shape[-2], rows)
    ]
    return np.concatenate(parts, axis=-2)


def _sum(tensors: Mapping[str, Array], values: Values, total: Total, *, transposed: bool) -> Array:
    weight = np.swapaxes(tensors["weight"], -1, -2) if transposed else tensors["weight"]
    product = _matrix_product(tensors["input"], weight, total)
    return product + tensors["bias"] if values["has_bias"] else product


def _call(
    rows: int, columns: int, inner: int, *batch: int, activation: int = 0, bias: int = 1
) -> dict[str, int]:
    """Values by name; batch axes from the outermost in."""
    sizes = {f"size_{axis}": size for axis, size in enumerate(reversed((1, 1, 1, 1, *batch)[-4:]))}
    shape = {"rows": rows, "columns": columns, "inner": inner, "n": prod(batch)}
    return {**sizes, **shape, "activation": activation, "has_bias": bias}


def _calls(*, transposed: bool = False, strided: bool = False, **options: Any) -> Calls:
    """Calls on matrices of contiguous rows, but for a transposed weight; strided ones have a last axis of
    1."""

    def tensor(name: str) -> Tensor:
        cores = CORES[name][::-1] if transposed and name == "weight" else CORES[name]
        axes: tuple[str | int, ...] = (*_BATCH, *((1,) * (2 - len(cores))), *cores, *((1,) * strided))
        strides = {f"stride_{name}_{axis}": 3 - axis for axis in range(4)}
        strides |= {f"stride_{name}_{core}": axes.index(core) for core in (cores if strided else cores[:-1])}
        # an element of the weight has a part in every row
        return Tensor(shape=axes, strides=strides, specials="small" if name == "weight" else "all")

    def compute(tensors: Mapping[str, Array], values: Values, total: Total) -> dict[str, Array]:
        found = {name: x[..., 0] if strided else x for name, x in tensors.items()}
        result = _ACTIVATIONS[int(values["activation"])](_sum(found, values, total, transposed=transposed))
        return {"out": result[..., None] if strided else result}

    def magnitude(tensors: Mapping[str, Array], values: Values, total: Total) -> dict[str, Array]:
        found = {name: np.abs(x[..., 0] if strided else x) for name, x in tensors.items()}
        # no activation is steeper than gelu's 1.13
        size = 1.13 * _sum(found, values, total, transposed=transposed)
        return {"out": size[..., None] if strided else size}

    return Calls(
        compute=compute,
        magnitude=magnitude,
        inputs={name: tensor(name) for name in TENSORS[:-1]},
        outputs={"out": tensor("out")},
        # products, their sum, the bias, and the roundings of an activation
        roundings=lambda shape: shape["inner"] + 12.0,
        typical=_call(64, 64, 64),
        title="{rows} x {columns} x {inner}, {n} matrices, activation {activation}, bias {has_bias}",
        **options,
    )


_SHAPES = (
    # at most 16 rows
    _call(1, 1, 1, activation=2),
    _call(16, 72, 40, activation=3, bias=0),
    _call(5, 136, 64, 3, activation=1),
    _call(16, 40, 0, activation=2),
    _call(9, 72, 200, activation=2),
    # tiles have up to 128 x 256 elements, and 16 to 64 of the inner axis
    _call(17, 8, 8),
    _call(70, 136, 40, activation=2),
    _call(65, 24, 100, 2, 2, activation=3),
    _call(33, 67, 21, activation=1, bias=0),
    _call(29, 136, 136, activation=3),
    # large ones with full blocks of the inner axis
    _call(264, 256, 64, activation=2),
    _call(300, 264, 192, activation=3, bias=0),
)
_LAYOUTS = {
    "rows of 8 apart": Layout(row_padding=8),
    "axes exchanged": Layout(order=(1, 3, 0, 2, 4), row_padding=8),
}
_BY_KERNEL: Mapping[str, Calls] = {
    "gemm_nn": _calls(shapes=_SHAPES, layouts=_LAYOUTS),
    "gemm_nt": _calls(shapes=_SHAPES, layouts=_LAYOUTS, transposed=True),
    "gemm_strided": _calls(
        shapes=(
            _call(1, 1, 1, activation=2),
            _call(5, 130, 64, 3, activation=1),
            _call(70, 36, 40, activation=2),
            _call(65, 24, 21, 2, 2, activation=3),
            _call(40, 3, 0, bias=0),
        ),
        layouts={"axes exchanged": Layout(order=(1, 5, 3, 0, 2, 4), row_padding=1)},
        strided=True,
    ),
}
_TALL = (
    _call(560, 72, 40, bias=0),
    _call(1100, 136, 64, activation=1),
)
"""More rows of tiles than a group has, aligned only."""
_LARGE = (
    _call(576, 72, 136, activation=2),
    _call(13, 8456, 136, activation=1),
    _call(29, 8456, 136, activation=3, bias=0),
    _call(520, 776, 136, activation=1),
    _call(1040, 776, 136, activation=1),
    _call(1300, 1240, 72, activation=3, bias=0),
    _call(1600, 1544, 72, activation=2),
    _call(2100, 1544, 128),
    _call(2100, 1544, 136, activation=2),
)
"""For the settings of some shapes and of large matrices, aligned only: a case each. Calls this large are slow where no setting needs them."""


def _aligned(kernel: str, shapes: tuple[dict[str, int], ...], keys: Mapping[str, int]) -> list[Case]:
    if kernel == "gemm_strided":
        return []
    found = _calls(shapes=shapes, transposed=kernel == "gemm_nt").cases(kernel, keys)
    return [case for case in found if case.name.endswith(", aligned")]


SHAPE = _BY_KERNEL["gemm_nn"].typical


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """All calls of one functional."""
    return [
        *_BY_KERNEL[kernel].cases(kernel, keys),
        *_aligned(kernel, _TALL, keys),
        *(replace(case, unless_reached=True) for case in _aligned(kernel, _LARGE, keys)),
    ]


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given shape on aligned tensors."""
    return _BY_KERNEL[kernel].shaped(kernel, keys, shape)
