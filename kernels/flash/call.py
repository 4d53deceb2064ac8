"""Attention problems as callers pose them, and the operator values that the C++ library derives from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aotforge.verify.tensors import Float, Guarded, Layout
from aotforge.virtual_gpu.interpreter.number_formats import STORAGE, DType, decode, encode

from .philox import keep_mask
from .reference import Options

DTYPE_KEY: Mapping[DType, int] = {"fp32": 1, "fp16": 2, "bf16": 3}
DENSE = Layout()
BiasKind = Literal["normal", "masked", "lowest"]
Draw = Literal["normal", "equal", "low"]


@dataclass(frozen=True, kw_only=True)
class Bias:
    """An additive bias. "masked": the first row is -inf, the second but for one value, and more at random; "lowest": the same
    with the type's lowest finite number. Dimensions of (batch, heads, rows) in `broadcast` have one element.
    """

    kind: BiasKind = "normal"
    broadcast: tuple[int, ...] = ()

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Float:
        """Values of that shape, broadcast dimensions shrunk to 1."""
        stored = tuple(1 if axis in self.broadcast else size for axis, size in enumerate(shape))
        values = rng.standard_normal(stored)
        if self.kind == "normal":
            return values
        removed = rng.random(stored) < 0.25
        removed[:, :, :2, :] = True
        removed[:, :, 1:2, stored[-1] // 2] = False
        lowest = -np.inf if self.kind == "masked" else -_largest(dtype)
        return np.asarray(np.where(removed, lowest, values), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Probability and the two halves of the offset, of which the second comes by value."""

    p: float = 0.25
    seed: int = 0x1234_5678_9ABC_DEF0
    offset1: int = 2**33 + 5
    offset2: int = 7


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attention problem. A window of None on one side has no bound there.

    `draw`: "equal" inputs are all 133120, as large as their sums still fit float32; "low" ones have scores near -120.
    """

    dtype: DType = "fp16"
    batch: int = 1
    heads_q: int = 1
    heads_k: int = 1
    seqlen_q: int = 16
    seqlen_k: int = 16
    head_dim: int = 32
    head_dim_v: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    bias: Bias | None = None
    dropout: Dropout | None = None
    sm_scale: float = 0.25
    layout: Layout = DENSE
    seed: int = 0
    draw: Draw = "normal"

    def shape(self, name: str) -> tuple[int, int, int, int]:
        """Of a tensor by its operator value's name: (batch, heads, rows, columns)."""
        if name in {"B", "DB"}:
            return (self.batch, self.heads_q, self.seqlen_q, self.seqlen_k)
        keys = name in {"K", "V", "DK", "DV"}
        heads, rows = (self.heads_k, self.seqlen_k) if keys else (self.heads_q, self.seqlen_q)
        of_values = self.head_dim_v is not None and name in {"V", "Out", "DO", "DV"}
        return (self.batch, heads, rows, self.head_dim_v if of_values else self.head_dim)  # type: ignore[return-value]

    def inputs(self) -> dict[str, Float]:
        """Q, K, V, DO and, with a bias, B, already rounded to the case's dtype."""
        rng = np.random.default_rng(self.seed)
        drawn = {name: self._drawn(name, rng) for name in ("Q", "K", "V", "DO")}
        if self.bias:
            drawn["B"] = self.bias.draw(rng, self.shape("B"), self.dtype)
        return {name: decode(encode(values, self.dtype), self.dtype) for name, values in drawn.items()}

    def _drawn(self, name: str, rng: np.random.Generator) -> Float:
        values = rng.standard_normal(self.shape(name))
        if self.draw == "equal" and name != "DO":
            return np.full(values.shape, 133120.0)
        if self.draw == "low" and name in {"Q", "K"}:
            size = (120 / (abs(self.sm_scale) * self.head_dim)) ** 0.5
            return np.asarray(values / 32 + (size if name == "Q" else -size))
        return values

    def options(self, inputs: Mapping[str, Float]) -> Options:
        """What the references need beside the tensors. Numbers are as float32 has them: so they reach a kernel."""
        keep, dropout_p = None, 0.0
        if self.dropout:
            dropout_p = float(np.float32(self.dropout.p))
            keep = keep_mask(
                seed=self.dropout.seed, offset=self.dropout.offset1 + self.dropout.offset2, dropout_p=dropout_p,
                planes=range(self.batch), heads=self.heads_q, rows=self.seqlen_q, columns=self.seqlen_k,
            )  # fmt: skip
        return Options(
            sm_scale=float(np.float32(self.sm_scale)),
            window_left=self.window_left,
            window_right=self.window_right,
            bias=np.broadcast_to(inputs["B"], self.shape("B")) if self.bias else None,
            keep=keep,
            dropout_p=dropout_p,
        )


def _largest(dtype: DType) -> float:
    """The largest finite number of a type."""
    if dtype == "bf16":
        return float.fromhex("0x1.fep+127")
    return float(np.finfo(STORAGE[dtype]).max)


def _window(case: Case) -> dict[str, int]:
    """The mask and its window, resolved and clamped."""
    if case.bias or case.window_left is case.window_right is None:
        return {"mask": 2 if case.bias else 0, "window_left": 0, "window_right": 0}
    left = case.seqlen_q if case.window_left is None else case.window_left
    right = case.seqlen_k if case.window_right is None else case.window_right
    return {
        "mask": 1,
        "window_left": min(max(left, -case.seqlen_k), case.seqlen_q),
        "window_right": min(max(right, -case.seqlen_q), case.seqlen_k),
    }


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
        "head_dim_v": case.head_dim_v or case.head_dim,
        "width": max(case.head_dim, case.head_dim_v or 0),
        "sm_scale": case.sm_scale,
        "dtype": DTYPE_KEY[case.dtype],
        **_window(case),
        "dropout": 0,
        "varlen_bits": 0,
        "lse_packed": 0,
    }
    for name, tensor in tensors.items():
        values[name] = tensor.address
        if name in _LETTERS:
            row = "n" if name in {"K", "V", "DK", "DV"} else "m"
            for axis, stride in zip("zh" + row, tensor.strides[:3], strict=True):
                values[f"stride_{_LETTERS[name]}{axis}"] = stride
        else:
            stride = tensor.strides[2]
            for axis, step in {"z": stride * case.heads_q, "h": stride, "m": 1}.items():
                values[f"stride_{name.lower()}{axis}"] = step
    return values
