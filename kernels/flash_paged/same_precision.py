"""The same computations in the same precision, in numpy: they have the errors that any kernel's have.

Every step is formed in float64 and rounded. `step` products or splits are added at a time, 0: all at once; no
function knows a kernel's block sizes. Exponentials are powers of two. `cut_off`: products are added as matrix
units do that cut sums off, as in kernels/flash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.tensors import Float

from .problems import Mask, Problem
from .reference import gathered, queries_of

STEPS = (0, 1, 4, 16, 64)
CUT_OFF_STEP, _CUT_OFF_BITS = 16, 25
"""Of matrix units that cut sums off: products at a time, and bits below the leading one of the largest."""
_LOG2E, _LN2 = np.float32(np.log2(np.e)), np.float32(np.log(2.0))
Single = npt.NDArray[np.float32]


def rounded(x: npt.ArrayLike, dtype: DType) -> Float:
    """To nearest in the dtype."""
    return np.asarray(decode(encode(np.asarray(x), dtype), dtype), dtype=np.float64)


def _single(x: npt.ArrayLike) -> Single:
    return np.asarray(x, dtype=np.float32)


def _blocks(length: int, step: int) -> Iterator[slice]:
    step = step or max(length, 1)
    return (slice(start, start + step) for start in range(0, length, step))


def _exp2(x: npt.ArrayLike) -> Single:
    return _single(np.exp2(np.asarray(x, dtype=np.float64)))


def _added(total: Float | Single, left: Float, right: Float, *, cut_off: bool) -> Single:
    """total + left @ right, one head after the other."""
    if not cut_off:
        return _single(total + left @ right)
    products = left[..., None, :] * np.swapaxes(right, 1, 2)[:, None]
    terms = np.concatenate([np.asarray(total, np.float64)[..., None], products], axis=-1)
    last = np.frexp(np.abs(terms).max(axis=-1))[1] - 1 - _CUT_OFF_BITS
    exact = np.ldexp(np.trunc(np.ldexp(terms, -last[..., None])).sum(axis=-1), last)
    near = _single(exact)
    return np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0.0)), near)


def _scores(problem: Problem, q: Float, k: Float, seen: Mask, step: int, *, cut_off: bool) -> Single:
    """Times log2(e)."""
    total = np.zeros((*q.shape[:2], k.shape[1]), dtype=np.float32)
    for columns in _blocks(q.shape[2], step):
        total = _added(total, q[..., columns], np.swapaxes(k[..., columns], 1, 2), cut_off=cut_off)
    unit = _single(np.float32(problem.sm_scale) * _single(problem.scales_q[0]))
    if not problem.softcap:
        total = total * _single(unit * _LOG2E)
    else:
        x = total * _single(unit / np.float32(problem.softcap))
        e = _exp2(x * _single(2 * _LOG2E))
        total = _single(1 - _single(2 / _single(e + 1))) * _single(problem.softcap * _LOG2E)
    return np.where(seen, total, np.float32(-np.inf))


def _shift(top: Single) -> Single:
    return np.where(np.isfinite(top), top, np.float32(0.0))


def attention(
    problem: Problem, sequence: int, step: int, split: int | None = None, *, cut_off: bool = False
) -> tuple[Float, Float]:
    """(out, lse) of one sequence as a kernel stores them, of all splits or of one in float32."""
    q, k, v = queries_of(problem, sequence), *(gathered(problem, sequence, name) for name in "KV")
    scores = _scores(problem, q, k, problem.visible(sequence, split), step, cut_off=cut_off)
    top = np.full(scores.shape[:2], -np.inf, dtype=np.float32)
    total = np.zeros(scores.shape[:2], dtype=np.float32)
    out = np.zeros((*scores.shape[:2], v.shape[2]), dtype=np.float32)
    for keys in _blocks(k.shape[1], step):
        above = np.maximum(top, scores[..., keys].max(axis=-1, initial=-np.inf))
        p, correction = _exp2(scores[..., keys] - _shift(above)[..., None]), _exp2(top - _shift(above))
        total = _single(total * correction + p.sum(axis=-1, dtype=np.float64))
        out = _added(out * correction[..., None], rounded(p, problem.dtype), v[:, keys], cut_off=cut_off)
        top = above
    partial = split is not None
    if problem.sinks and not partial:
        sinks = _single(problem.numbers()["sinks"])[:, None]
        top, total, correction = _with_sinks(sinks, top, total)
        out = out * correction[..., None]
    return _finished(problem, out, top, total, _single(problem.scales_q[1][..., 0]), partial=partial)


def _with_sinks(sinks: Single, top: Single, total: Single) -> tuple[Single, Single, Single]:
    logit = sinks * _LOG2E
    above = np.maximum(top, logit)
    correction = _exp2(top - above)
    return above, _single(total * correction + _exp2(logit - above)), correction


def _finished(
    problem: Problem, out: Single, top: Single, total: Single, factor: Single, *, partial: bool
) -> tuple[Float, Float]:
    empty = total == 0
    divisor = np.where(empty, np.float32(1.0), total)
    lse = _single((_shift(top) + _single(np.log2(np.float64(divisor)))) * _LN2)
    lse = np.where(empty, np.float32(-np.inf if partial else np.inf), lse)
    result = rounded(out * _single(factor / divisor)[..., None], "fp32" if partial else problem.dtype)
    return np.swapaxes(result, 0, 1), np.swapaxes(lse, 0, 1).astype(np.float64)


def complete(
    problem: Problem, step: int, split: int | None = None, *, cut_off: bool = False
) -> tuple[Float, Float]:
    """Of all sequences."""
    sequences = range(len(problem.queries))
    found = [attention(problem, sequence, step, split, cut_off=cut_off) for sequence in sequences]
    return np.concatenate([out for out, _ in found]), np.concatenate([lse for _, lse in found])


def combined(problem: Problem, parts: Float, lse: Float, step: int) -> tuple[Float, Float]:
    """(out, lse) of splits with these results."""
    usable = np.where(np.isfinite(lse)[..., None], parts, 0.0)
    scaled = _single(lse) * _LOG2E
    top = np.full(scaled.shape[:2], -np.inf, dtype=np.float32)
    total = np.zeros(scaled.shape[:2], dtype=np.float32)
    out = np.zeros((*scaled.shape[:2], parts.shape[-1]), dtype=np.float32)
    for splits in _blocks(scaled.shape[2], step):
        above = np.maximum(top, scaled[..., splits].max(axis=-1, initial=-np.inf))
        weights, correction = (
            _exp2(scaled[..., splits] - _shift(above)[..., None]),
            _exp2(top - _shift(above)),
        )
        total = _single(total * correction + weights.sum(axis=-1, dtype=np.float64))
        added = (weights[..., None].astype(np.float64) * usable[..., splits, :]).sum(axis=2)
        out = _single(out * correction[..., None] + added)
        top = above
    if problem.sinks:
        top, total, correction = _with_sinks(_single(problem.numbers()["sinks"])[None, :], top, total)
        out = out * correction[..., None]
    result, of_rows = _finished(problem, out, top, total, _single(1.0), partial=False)
    return np.swapaxes(result, 0, 1), np.swapaxes(of_rows, 0, 1)
