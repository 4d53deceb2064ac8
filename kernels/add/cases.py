"""Calls on which every image of `add` is tried: lengths around the block, tensors aligned and not."""

from __future__ import annotations

from collections.abc import Mapping

from aotforge.verify.calls import Calls, Tensor, Total, Values
from aotforge.verify.interpreter.number_formats import Array


def add(tensors: Mapping[str, Array], values: Values, total: Total) -> dict[str, Array]:
    """out = x + y."""
    return {"out": tensors["x"] + tensors["y"]}


CALLS = Calls(
    compute=add,
    inputs={"x": Tensor(shape=("n",)), "y": Tensor(shape=("n",))},
    outputs={"out": Tensor(shape=("n",))},
    # blocks have 1024 or 2048 elements
    shapes=[{"n": n} for n in (1, 8, 37, 1000, 1003, 2048, 2056, 5000)],
    typical={"n": 65536},
    title="{n} elements",
)
cases, shaped, SHAPE = CALLS.cases, CALLS.shaped, CALLS.typical
