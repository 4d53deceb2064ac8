"""Attention with bias, dropout, variable length and a causal bound, forward and backward: in float64, and in the precision that a
kernel has (`Arithmetic`), which gives the errors of the same computation.

Tokens are (token, head, element), the sequences of a batch end to end. `kept` is (sequence, head, query, key).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aotforge.verify.interpreter.number_formats import DType, decode, encode

Double = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """`dtype` None: float64 throughout. Otherwise inputs of products have it, and sums are float32, rounded after every `order`
    products."""

    dtype: DType | None = None
    order: int = 1

    def narrow(self, x: Double) -> Double:
        return x if self.dtype is None else decode(encode(x, self.dtype), self.dtype)

    def single(self, x: Double) -> Double:
        return x if self.dtype is None else x.astype(np.float32).astype(np.float64)

    def product(self, a: Double, b: Double) -> Double:
        if self.dtype is None:
            return a @ b
        total = np.zeros((a.shape[0], b.shape[1]))
        for k in range(0, a.shape[1], self.order):
            total = self.single(total + a[:, k : k + self.order] @ b[k : k + self.order])
        return total

    def total(self, a: Double) -> Double:
        """Sums of rows."""
        return self.product(a, np.ones((a.shape[1], 1)))[:, 0]


@dataclass(frozen=True, kw_only=True)
class Sequence_:
    """One head of one sequence."""

    q: Double
    k: Double
    v: Double
    do: Double
    bias: Double
    kept: npt.NDArray[np.bool_]
    seen: npt.NDArray[np.bool_]


def one_head(s: Sequence_, scale: float, p_drop: float, exact: Arithmetic) -> Mapping[str, Double]:
    """Out, L, DQ, DK, DV, DB of one head."""
    a = exact
    scores = np.where(s.seen, a.single(a.single(a.product(s.q, s.k.T) * scale) + s.bias), -np.inf)
    top = np.where(s.seen.any(axis=1), scores.max(axis=1, initial=-np.inf), 0.0)
    p = a.single(np.exp(scores - top[:, None]))
    total = a.total(p)
    total_or_one = np.where(total > 0, total, 1.0)
    drop = np.where(s.kept, 1.0 / (1.0 - p_drop), 0.0)
    out = a.narrow(
        a.single(a.product(a.narrow(np.where(s.kept, p, 0.0)), s.v) / (1.0 - p_drop) / total_or_one[:, None])
    )
    lse = a.single(np.where(total > 0, top + np.log(total_or_one), np.inf))
    p = a.single(
        np.exp(np.where(np.isfinite(lse)[:, None], scores - np.where(total > 0, lse, 0.0)[:, None], -np.inf))
    )
    dp = a.single(a.product(s.do, s.v.T) * drop)
    ds = a.single(p * (dp - a.total(a.single(s.do * out))[:, None]))
    return {
        "Out": out,
        "L": lse,
        "DQ": a.single(a.product(a.narrow(ds), s.k) * scale),
        "DK": a.narrow(a.single(a.product(a.narrow(ds).T, s.q) * scale)),
        "DV": a.narrow(a.product(a.narrow(a.single(p * drop)).T, s.do)),
        "DB": ds,
    }


def philox(counter: Words, seed: int) -> Sequence[Words]:
    """Philox 4x32-10 (Salmon and others, SC 2011) of counters (c, 0, 0, 0) under the key (seed, 0): four words each."""
    mask, c0 = np.uint64(0xFFFFFFFF), counter.astype(np.uint64)
    c1, c2, c3 = (np.zeros_like(c0) for _ in range(3))
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(0)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (second >> np.uint64(32)) ^ c1 ^ k0,
            second & mask,
            (first >> np.uint64(32)) ^ c3 ^ k1,
            first & mask,
        )
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return [c.astype(np.uint32) for c in (c0, c1, c2, c3)]


def uniform(words: Words) -> npt.NDArray[np.float32]:
    """In [0, 1), as `tl.rand` makes it of a word's magnitude."""
    signed = words.view(np.int32).astype(np.int64)
    return np.asarray(
        np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)
    )
