"""Same-precision reference of attention, in numpy: it has the errors that the same computation has in any
kernel.

Inputs and results are rounded to the dtype, sums, exponentials and statistics are float32, and what is
multiplied by a matrix
again (P and dS) is rounded to the dtype before. `order` is that of every sum, as any kernel adds in an order
of its own; the
forward is an online softmax over as many keys as a sum adds at a time. With `binary` exponentials are powers
of two, which GPUs
have instructions for: of scores times log2(e) or, with a bias, which may be too large for that, of their
difference from the largest
one times log2(e). Nothing here knows a kernel's block sizes. Shapes are those of reference.py.

Every step is formed in float64 and then rounded, which is the same as correct rounding but for ties: so the
results do not depend on
the machine's vector units, as numpy's float32 exp and sums do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.verify.interpreter.number_formats import DType, decode, encode

from .reference import Mask, Options

Single = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]
_LOG2E, _LN2 = np.float32(np.log2(np.e)), np.float32(np.log(2.0))
_ZERO = np.float32(-1000.0)
"""The exponential of this and of all below is 0 in float32."""
_CACHED = 1 << 16
"""As many elements of a sum stay in a processor's cache."""


@dataclass(frozen=True)
class Order:
    """Of additions: `products` at a time (None: all at once), each time of every `stride`-th.

    A stride with a factor in common with the number of products is 1. `bits`: of each product and of the sum
    so far, matrix units keep
    this many bits below the leading bit of the largest among them, and of the new sum as many as float32 has.
    None: sums are rounded.
    """

    products: int | None = None
    stride: int = 1
    bits: int | None = None


def rounded(x: Single, dtype: DType) -> Single:
    """To nearest in the dtype, as float32."""
    return decode(encode(x, dtype), dtype).astype(np.float32)


def attention(
    q: Double, k: Double, v: Double, options: Options, *, dtype: DType, order: Order, binary: bool = False
) -> tuple[Double, Double]:
    """(out, lse): what a kernel would store."""
    out, lse = np.zeros((*q.shape[:3], v.shape[3])), np.zeros(q.shape[:3])
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        qs, ks, vs = _single(q[b, h], k[b, h // group], v[b, h // group])
        scaled = binary and options.bias is None
        scores = _scores(qs, ks, options, b, h, order, scaled)
        keep = None if options.keep is None else options.keep[b, h]
        one, lse[b, h] = _attend(scores, vs, keep, dtype, order, binary, scaled)
        out[b, h] = rounded(_to_single(one * np.float64(np.float32(options.gain))), dtype)
    return out, lse


def preprocess(out: Double, do: Double, *, order: Order) -> Double:
    """rowsum(out * do) in float32, (batch, num_head_q, seqlen_q)."""
    total = np.zeros(out.shape[:-1], dtype=np.float32)
    for columns in _blocks(out.shape[-1], order):
        total = _to_single(total + (out[..., columns] * do[..., columns]).sum(axis=-1))
    return total.astype(np.float64)


def attention_backward(
    q: Double, k: Double, v: Double, do: Double, lse: Double, delta: Double, options: Options,
    *, dtype: DType, order: Order, binary: bool = False,
) -> tuple[Double, Double, Double, Double]:  # fmt: skip
    """(dq, dk, dv, db) from stored log-sum-exp and rowsum(out * do), both (batch, num_head_q, seqlen_q)."""
    dq, dk, dv = (np.zeros(x.shape, dtype=np.float32) for x in (q, k, v))
    db = np.zeros((*q.shape[:3], k.shape[2]))
    scale, gain, group = np.float32(options.sm_scale), np.float32(options.gain), q.shape[1] // k.shape[1]
    before, after = (gain, np.float32(1.0)) if options.factors_first else (np.float32(1.0), gain)
    for b, h in np.ndindex(q.shape[:2]):
        g = h // group
        qs, ks, vs, dos, ls, ds = _single(q[b, h], k[b, g], v[b, g], do[b, h], lse[b, h], delta[b, h])
        scaled = binary and (options.bias is None or options.factors_first)
        stored = ls * _LOG2E if scaled else ls
        p = _exp(_scores(qs, ks, options, b, h, order, scaled) - stored[:, None], binary, scaled)
        dp, kept = _product(dos, vs.T, order), p
        if options.keep is not None:
            dp, kept = (np.where(options.keep[b, h], x, np.float32(0.0)) for x in (dp * gain, p * before))
        slope = rounded(p * (dp - ds[:, None]), dtype)
        db[b, h] = slope
        dq[b, h] = _product(slope, ks, order)
        # heads of a group continue one sum, as a kernel's loop over them does
        dk[b, g] = _product(slope.T, qs, order, dk[b, g])
        dv[b, g] = _product(rounded(kept, dtype).T, dos, order, dv[b, g])
    grads = [rounded(x, dtype).astype(np.float64) for x in (dq * scale, dk * scale, dv * after)]
    return grads[0], grads[1], grads[2], db


def _scores(q: Single, k: Single, options: Options, b: int, h: int, order: Order, scaled: bool) -> Single:
    """Masked scores of one head times sm_scale, with their bias; `scaled`: times log2(e)."""
    unit = np.log2(np.e) if scaled else 1.0
    bias = None if options.bias is None else options.bias[b, h]
    begin = None if bias is None or not options.factors_first else _to_single(bias / options.sm_scale)
    scores = _product(q, k.T, order, begin) * np.float32(options.sm_scale * unit)
    if bias is not None and begin is None:
        scores = _to_single(scores + bias)
    return np.where(options.visible(len(q), len(k)), scores, np.float32(-np.inf))


def _attend(
    scores: Single, v: Single, keep: Mask | None, dtype: DType, order: Order, binary: bool, scaled: bool
) -> tuple[Single, Single]:
    """One head's output, neither rounded nor scaled for dropout, and log-sum-exp."""
    top = np.full(len(scores), -np.inf, dtype=np.float32)
    total = np.zeros(len(scores), dtype=np.float32)
    out = np.zeros((len(scores), v.shape[1]), dtype=np.float32)
    for keys in _blocks(len(v), order):
        above = np.maximum(top, scores[:, keys].max(axis=1, initial=-np.inf))
        shift = np.where(np.isfinite(above), above, np.float32(0.0))
        p = _exp(scores[:, keys] - shift[:, None], binary, scaled)
        correction = _exp(top - shift, binary, scaled)
        total = _to_single(total * correction + p.sum(axis=1, dtype=np.float64))
        kept = p if keep is None else np.where(keep[:, keys], p, np.float32(0.0))
        out = _added(
            out * correction[:, None],
            rounded(kept, dtype).astype(np.float64),
            v[keys].astype(np.float64),
            order,
        )
        top = above
    empty = total == 0
    divisor = np.where(empty, np.float32(1.0), total)
    largest = np.where(empty, np.float32(0.0), top)
    if scaled:
        lse = _to_single(largest * _LN2) + _to_single(_to_single(np.log2(np.float64(divisor))) * _LN2)
    else:
        lse = largest + _to_single(np.log(np.float64(divisor)))
    lse = np.where(empty, np.float32(np.inf), lse)
    return _to_single(out / divisor[:, None]), _to_single(lse)


def _product(a: Single, b: Single, order: Order, total: Single | None = None) -> Single:
    """a @ b, added to `total`."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float32) if total is None else total
    if order.products == 1 and order.bits is None:
        return _in_turn(total, left, right, order)
    for inner in _blocks(a.shape[1], order):
        total = _added(total, left[:, inner], right[inner], order)
    return total


def _in_turn(total: Single, left: Double, right: Double, order: Order) -> Single:
    """As `_added` for each single product, without new arrays for each."""
    total, columns, rows = total.copy(), np.ascontiguousarray(left.T), _CACHED // max(right.shape[1], 1) + 1
    for start in range(0, len(total), rows):
        part = slice(start, start + rows)
        term = np.empty(total[part].shape)
        for (inner,) in _blocks(len(right), order):
            np.multiply(columns[inner, part, None], right[inner], out=term)
            term += total[part]
            total[part] = term
    return total


def _added(total: Single, left: Double, right: Double, order: Order) -> Single:
    """total + left @ right, whose products are those that are added at a time."""
    if order.bits is None:
        return _to_single(total + left @ right)
    terms = np.concatenate([total.astype(np.float64)[..., None], left[:, None, :] * right.T], axis=2)
    # frexp's exponent is one more than that of the leading bit
    last = np.frexp(np.abs(terms).max(axis=2))[1] - 1 - order.bits
    exact = np.ldexp(np.trunc(np.ldexp(terms, -last[..., None])).sum(axis=2), last)
    near = _to_single(exact)
    return np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0.0)), near)


def _exp(x: Single, binary: bool, scaled: bool) -> Single:
    """`scaled`: x has the factor log2(e) already."""
    if binary and not scaled:
        x = np.maximum(x, _ZERO) * _LOG2E
    return _to_single((np.exp2 if binary else np.exp)(np.float64(x)))


def _to_single(x: npt.NDArray[np.floating[Any]]) -> Single:
    return np.asarray(x, dtype=np.float32)


def _blocks(length: int, order: Order) -> Iterator[npt.NDArray[np.intp]]:
    stride = order.stride if math.gcd(order.stride, length) == 1 else 1
    indices = np.arange(length) * stride % max(length, 1)
    step = order.products or max(length, 1)
    return (indices[start : start + step] for start in range(0, length, step))


def _single(*arrays: Double) -> tuple[Single, ...]:
    return tuple(np.asarray(x, dtype=np.float32) for x in arrays)
