"""Calls of RMSNorm: rows around the blocks, batch axes in one and in several orders."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from aotforge.verify.calls import Calls, Tensor, Total, Values
from aotforge.verify.interpreter.number_formats import Array
from aotforge.verify.tensors import Layout


def rms_norm(tensors: Mapping[str, Array], values: Values, total: Total) -> dict[str, Array]:
    """RMSNorm in the precision of its inputs."""
    x = tensors["input"]
    mean = total(x * x) / x.dtype.type(values["columns"])
    return {"out": x / np.sqrt(mean + x.dtype.type(values["eps"])) * tensors["weight"]}


def _call(columns: int, *batch: int) -> dict[str, int]:
    """Sizes by name; batch axes from the outermost in."""
    sizes = {f"size_{axis}": size for axis, size in enumerate(reversed((1, 1, 1, 1, *batch)[-4:]))}
    return {**sizes, "n": prod(batch), "columns": columns}


_AXES = ("size_3", "size_2", "size_1", "size_0", "columns")
CALLS = Calls(
    compute=rms_norm,
    inputs={
        "input": Tensor(shape=_AXES, strides={f"stride_input_{axis}": 3 - axis for axis in range(4)}),
        "weight": Tensor(shape=("columns",)),
    },
    outputs={"out": Tensor(shape=_AXES, strides={f"stride_out_{axis}": 3 - axis for axis in range(4)})},
    # blocks have 64, 128, 512, 1024 to 16384 columns, and 32, 16, 8, 4, 2 rows or one; those of longer rows
    # 4096 columns
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
    # each column's square is summed once, whatever the order
    roundings=lambda shape: shape["columns"] / 2 + 8,
    scalars={"eps": 1e-6},
    layouts={
        "rows of 8 apart": Layout(row_padding=8),
        "axes exchanged": Layout(order=(1, 3, 0, 2), row_padding=8),
    },
    title="{n} rows of {columns}",
)
cases, shaped, SHAPE = CALLS.cases, CALLS.shaped, CALLS.typical
