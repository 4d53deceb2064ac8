"""Calls on which every image of `add` is tried: lengths around the block, tensors aligned and not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Guarded, Layout
from aotforge.virtual_gpu.interpreter.number_formats import EPSILON, SMALLEST, DType, decode, encode

from . import same_precision_reference as same_precision
from .reference import add

_DTYPES: Mapping[int, DType] = {1: "fp32", 2: "fp16", 3: "bf16"}
_LENGTHS = (1, 8, 37, 1000, 1003, 2048, 2056, 5000)  # blocks have 1024 or 2048 elements


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every length, with tensors of 64 bytes alignment and with odd addresses."""
    dtype = _DTYPES[keys["dtype"]]
    return [
        Case(name=f"{n} elements, {where}", make=lambda n=n, offset=offset: _invocation(dtype, n, offset))
        for n in _LENGTHS
        for where, offset in (("aligned", 64), ("unaligned", 37))
    ]


SHAPE = {"n": 65536}
"""What `shaped` takes."""


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given length on aligned tensors."""
    n = {**SHAPE, **shape}["n"]
    return Case(name=f"n={n}", make=lambda: _invocation(_DTYPES[keys["dtype"]], n, 64))


def _invocation(dtype: DType, n: int, offset: int) -> Invocation:
    rng, shape, layout = np.random.default_rng(n), (1, 1, 1, n), Layout(offset=offset)
    x, y = (decode(encode(rng.standard_normal(shape), dtype), dtype) for _ in range(2))
    tensors = {"x": Guarded(shape, dtype, layout, x), "y": Guarded(shape, dtype, layout, y)}
    out = Guarded(shape, dtype, layout)
    values: dict[str, int | float] = {name: t.address for name, t in (*tensors.items(), ("out", out))}
    values |= {"n": n, "dtype": {"fp32": 1, "fp16": 2, "bf16": 3}[dtype]}
    exact = add(x, y)
    # one rounding to float32, one to the dtype
    error = (EPSILON[dtype] + EPSILON["fp32"]) * np.abs(exact) + SMALLEST[dtype]
    return Invocation(
        values=values,
        inputs=tensors,
        outputs={"out": out},
        expected=lambda: {
            "out": Expected(
                bounded=Bounded(value=exact, error=error),
                same_precision=[same_precision.add(x, y, dtype)],
                dtype=dtype,
            )
        },
    )
