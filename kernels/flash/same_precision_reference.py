"""Same-precision reference of attention, in numpy: it has the errors that the same computation has in any kernel.

Inputs and results are rounded to the dtype, sums, exponentials and statistics are float32, and what is multiplied by a matrix
again (P and dS) is rounded to the dtype before. `order` is the number of products that every sum adds at a time (None: all at
once) before it rounds to float32, as any kernel adds in an order of its own; the forward is an online softmax over as many
keys. Nothing here knows a kernel's block sizes. Shapes are those of reference.py.

Every step is formed in float64 and then rounded, which is the same as correct rounding but for ties: so the results do not depend on
the machine's vector units, as numpy's float32 exp and sums do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.virtual_gpu.interpreter.number_formats import DType, decode, encode

Single = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
Order = int | None


def rounded(x: Single, dtype: DType) -> Single:
    """To nearest in the dtype, as float32."""
    return decode(encode(x, dtype), dtype).astype(np.float32)


def attention(
    q: Double, k: Double, v: Double, *, sm_scale: float, window_right: int | None, dtype: DType, order: Order
) -> tuple[Double, Double]:
    """(out, lse): what a kernel would store."""
    out, lse = np.zeros(q.shape), np.zeros(q.shape[:3])
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        qs, ks, vs = _single(q[b, h], k[b, h // group], v[b, h // group])
        visible = _visible(q.shape[2], k.shape[2], window_right)
        one, lse[b, h] = _attend(qs, ks, vs, np.float32(sm_scale), visible, dtype, order)
        out[b, h] = rounded(one, dtype)
    return out, lse


def preprocess(out: Double, do: Double, *, order: Order) -> Double:
    """rowsum(out * do) in float32, (batch, num_head_q, seqlen_q)."""
    total = np.zeros(out.shape[:-1], dtype=np.float32)
    for columns in _blocks(out.shape[-1], order):
        total = _to_single(total + (out[..., columns] * do[..., columns]).sum(axis=-1))
    return total.astype(np.float64)


def attention_backward(
    q: Double, k: Double, v: Double, do: Double, lse: Double, delta: Double,
    *, sm_scale: float, window_right: int | None, dtype: DType, order: Order,
) -> tuple[Double, Double, Double]:  # fmt: skip
    """(dq, dk, dv) from stored log-sum-exp and rowsum(out * do), both (batch, num_head_q, seqlen_q)."""
    dq, dk, dv = (np.zeros(x.shape, dtype=np.float32) for x in (q, k, v))
    scale, group = np.float32(sm_scale), q.shape[1] // k.shape[1]
    visible = _visible(q.shape[2], k.shape[2], window_right)
    for b, h in np.ndindex(q.shape[:2]):
        g = h // group
        qs, ks, vs, dos, ls, ds = _single(q[b, h], k[b, g], v[b, g], do[b, h], lse[b, h], delta[b, h])
        p = np.where(visible, _exp(_product(qs, ks.T, order) * scale - ls[:, None]), np.float32(0.0))
        slope = rounded(p * (_product(dos, vs.T, order) - ds[:, None]), dtype)
        dq[b, h] = _product(slope, ks, order)
        dk[b, g] += _product(slope.T, qs, order)
        dv[b, g] += _product(rounded(p, dtype).T, dos, order)
    stored = (rounded(dq * scale, dtype), rounded(dk * scale, dtype), rounded(dv, dtype))
    return stored[0].astype(np.float64), stored[1].astype(np.float64), stored[2].astype(np.float64)


def _attend(
    q: Single, k: Single, v: Single, scale: np.float32, visible: npt.NDArray[np.bool_], dtype: DType, order: Order
) -> tuple[Single, Single]:  # fmt: skip
    """One head's output, not yet rounded, and log-sum-exp."""
    top = np.full(len(q), -np.inf, dtype=np.float32)
    total = np.zeros(len(q), dtype=np.float32)
    out = np.zeros(q.shape, dtype=np.float32)
    for keys in _blocks(len(k), order):
        scores = np.where(visible[:, keys], _product(q, k[keys].T, order) * scale, np.float32(-np.inf))
        above = np.maximum(top, scores.max(axis=1, initial=-np.inf))
        shift = np.where(np.isfinite(above), above, np.float32(0.0))
        p = _exp(scores - shift[:, None])
        correction = _exp(top - shift)
        total = _to_single(total * correction + p.sum(axis=1, dtype=np.float64))
        out = _to_single(out * correction[:, None] + np.float64(rounded(p, dtype)) @ v[keys])
        top = above
    empty = total == 0
    divisor = np.where(empty, np.float32(1.0), total)
    lse = np.where(
        empty,
        np.float32(np.inf),
        np.where(empty, np.float32(0.0), top) + _to_single(np.log(np.float64(divisor))),
    )
    return _to_single(out / divisor[:, None]), _to_single(lse)


def _product(a: Single, b: Single, order: Order) -> Single:
    """a @ b, `order` products at a time."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float32)
    for inner in _blocks(a.shape[1], order):
        total = _to_single(total + left[:, inner] @ right[inner])
    return total


def _exp(x: Single) -> Single:
    return _to_single(np.exp(np.float64(x)))


def _to_single(x: npt.NDArray[np.floating[Any]]) -> Single:
    return np.asarray(x, dtype=np.float32)


def _blocks(length: int, order: Order) -> Iterator[slice]:
    step = order or max(length, 1)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _single(*arrays: Double) -> tuple[Single, ...]:
    return tuple(np.asarray(x, dtype=np.float32) for x in arrays)


def _visible(n_q: int, n_k: int, window_right: int | None) -> npt.NDArray[np.bool_]:
    if window_right is None:
        return np.ones((n_q, n_k), dtype=np.bool_)
    return np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + window_right
