"""Calls of the dropout mask: +-0.5 where the reference keeps and drops, any strides, null state, both ends of
the probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from aotforge.verify.compare import Exact
from aotforge.verify.interpreter.number_formats import DType
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Guarded, Layout, dtype_of

from .call import DENSE, DTYPE_KEY
from .philox import keep_mask


@dataclass(frozen=True, kw_only=True)
class _Call:
    shape: tuple[int, int, int, int]
    p: float = 0.25
    seed: int | None = 0x1234_5678_9ABC_DEF0
    offset1: int | None = 2**64 - 3
    offset2: int = 2**33 + 7
    layout: Layout = DENSE
    dtype: DType = "fp32"


_CALLS = {
    "contiguous": _Call(shape=(2, 3, 70, 77)),
    "another order": _Call(shape=(2, 3, 5, 130), layout=Layout(order=(2, 0, 1), row_padding=3, offset=1)),
    "null state": _Call(shape=(1, 2, 33, 40), seed=None, offset1=None, offset2=0),
    "all kept": _Call(shape=(1, 1, 9, 70), p=0.0, seed=None, offset1=None),
    "none kept": _Call(shape=(1, 1, 9, 70), p=1.0),
    "a rare drop": _Call(shape=(1, 2, 64, 64), p=0.01),
    "no keys": _Call(shape=(1, 1, 9, 0)),
}


def mask_cases(keys: Mapping[str, int]) -> list[Case]:
    """The calls with R of one element type."""
    calls = {name: replace(call, dtype=dtype_of(keys["dtype"])) for name, call in _CALLS.items()}
    return [Case(name=name, make=partial(_invocation, call)) for name, call in calls.items()]


def shaped_mask(keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of a given shape."""
    names = ("batch", "heads_q", "seqlen_q", "seqlen_k")
    batch, heads, rows, columns = (shape[name] for name in names)
    call = _Call(shape=(batch, heads, rows, columns), dtype=dtype_of(keys["dtype"]))
    return Case(name=", ".join(f"{name}={shape[name]}" for name in names), make=partial(_invocation, call))


def _invocation(call: _Call) -> Invocation:
    state = {"philox_seed": call.seed, "philox_offset1": call.offset1}
    inputs = {
        name: Guarded((1,), "u64", DENSE, np.array([number], np.uint64))
        for name, number in state.items()
        if number is not None
    }
    r = Guarded(call.shape, call.dtype, call.layout)
    batch, heads, rows, columns = call.shape
    values = {
        "R": r.address,
        **dict(zip(("stride_rz", "stride_rh", "stride_rm", "stride_rn"), r.strides, strict=True)),
        **{"batch": batch, "num_head_q": heads, "seqlen_q": rows, "seqlen_k": columns},
        "dropout_p": call.p,
        **{name: inputs[name].address if name in inputs else 0 for name in state},
        "philox_offset2": call.offset2,
        "dtype": DTYPE_KEY[call.dtype],
    }

    def expected() -> dict[str, Exact]:
        kept = keep_mask(
            seed=call.seed or 0, offset=(call.offset1 or 0) + call.offset2, dropout_p=call.p,
            planes=range(batch), heads=heads, rows=rows, columns=columns,
        )  # fmt: skip
        return {"R": Exact(value=np.where(kept | (call.p == 0), 0.5, -0.5))}

    return Invocation(values=values, inputs=inputs, outputs={"R": r}, expected=expected)
