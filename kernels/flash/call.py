"""Attention problems as callers pose them, and the operator values that the C++ library derives from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aotforge.verify.tensors import Float, Guarded, Layout
from aotforge.virtual_gpu.interpreter.number_formats import DType, decode, encode

DTYPE_KEY: Mapping[DType, int] = {"fp32": 1, "fp16": 2, "bf16": 3}
DENSE = Layout()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attention problem. `window_right` None is full attention."""

    dtype: DType = "fp16"
    batch: int = 1
    heads_q: int = 1
    heads_k: int = 1
    seqlen_q: int = 16
    seqlen_k: int = 16
    head_dim: int = 32
    window_right: int | None = None
    sm_scale: float = 0.25
    layout: Layout = DENSE
    seed: int = 0

    def shape(self, name: str) -> tuple[int, int, int, int]:
        """Of a tensor by its operator value's name: (batch, heads, rows, head_dim)."""
        keys = name in {"K", "V", "DK", "DV"}
        heads, rows = (self.heads_k, self.seqlen_k) if keys else (self.heads_q, self.seqlen_q)
        return (self.batch, heads, rows, self.head_dim)

    def inputs(self) -> dict[str, Float]:
        """Q, K, V and DO, already rounded to the case's dtype."""
        rng = np.random.default_rng(self.seed)
        drawn = {name: rng.standard_normal(self.shape(name)) for name in ("Q", "K", "V", "DO")}
        return {name: decode(encode(values, self.dtype), self.dtype) for name, values in drawn.items()}


_LETTERS = {"Q": "q", "K": "k", "V": "v", "Out": "o", "DO": "do", "DK": "dk", "DV": "dv", "DQ": "dq"}


def values_of(case: Case, tensors: Mapping[str, Guarded]) -> dict[str, int | float]:
    """The operator values that the C++ library derives from such a call."""
    values: dict[str, int | float] = {
        "batch": case.batch,
        "num_head_q": case.heads_q,
        "num_head_k": case.heads_k,
        "group": case.heads_q // case.heads_k,
        "seqlen_q": case.seqlen_q,
        "seqlen_k": case.seqlen_k,
        "head_dim": case.head_dim,
        "head_dim_v": case.head_dim,
        "sm_scale": case.sm_scale,
        "dtype": DTYPE_KEY[case.dtype],
        "causal": 0 if case.window_right is None else 1,
        "window_right": 0 if case.window_right is None else case.window_right,
        "bias_type": 0,
        "dropout": 0,
        "varlen_type": 0,
    }
    for name, tensor in tensors.items():
        values[name] = tensor.address
        if name in _LETTERS:
            row = "n" if name in {"K", "V", "DK", "DV"} else "m"
            for axis, stride in zip("zh" + row, tensor.strides[:3], strict=True):
                values[f"stride_{_LETTERS[name]}{axis}"] = stride
        else:
            values[f"stride_{name.lower()}z"] = tensor.strides[2]
    return values
