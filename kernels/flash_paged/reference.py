"""float64 reference of attention over pages with the rounding bounds of its results, and of combining splits.

Bounds are a first-order analysis as in kernels/flash: u is the relative rounding error of the queries' type, to
which probabilities and results are rounded, e = 2^-24 that of float32, in which all else is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotforge.verify.compare import Bounded
from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST
from aotforge.verify.tensors import Float

from .problems import Mask, Problem

_E = EPSILON["fp32"]


@dataclass(frozen=True, kw_only=True)
class Results:
    """Of some queries: out (queries, heads, head_dim) and lse (queries, heads)."""

    out: Bounded
    lse: Bounded


def gathered(problem: Problem, sequence: int, name: str) -> Float:
    """Keys or values of a sequence by query head, as they are stored: (heads, keys, head_dim)."""
    rows = problem.numbers()[name][problem.rows(sequence)]
    return np.repeat(np.swapaxes(rows, 0, 1), problem.group, axis=0).astype(np.float64)


def queries_of(problem: Problem, sequence: int) -> Float:
    """(heads, queries, head_dim)."""
    starts = problem.starts()
    rows = problem.numbers()["Q"][starts[sequence] : starts[sequence + 1]]
    return np.asarray(np.swapaxes(rows, 0, 1), dtype=np.float64)


def attention(problem: Problem, sequence: int, split: int | None = None) -> Results:
    """Of one sequence; with a `split` of its keys alone, without sinks, rounded to float32."""
    q, k, v = queries_of(problem, sequence), *(gathered(problem, sequence, name) for name in "KV")
    k_scale, v_scale = problem.scales_q
    v = v * v_scale
    unit = float(np.float32(problem.sm_scale)) * k_scale
    scores = q @ np.swapaxes(k, 1, 2) * unit
    size = np.abs(q) @ np.swapaxes(np.abs(k), 1, 2) * np.abs(unit)
    # + 8 for scaling, shifting and exp itself; exp makes a score's absolute error relative
    error = (q.shape[2] + 8) * _E * np.max(size, axis=-1, initial=0.0)
    if problem.softcap:
        scores = problem.softcap * np.tanh(scores / problem.softcap)
        error = error + 8 * _E * problem.softcap
    sinks = problem.numbers()["sinks"] if problem.sinks and split is None else None
    p, lse = probabilities(scores, problem.visible(sequence, split), sinks)
    return _bounded(problem, p, lse, error, v, partial=split is not None)


def probabilities(scores: Float, visible: Mask, sinks: Float | None) -> tuple[Float, Float]:
    """Softmax over the keys that each row sees and its log-sum-exp, +inf where it sees none."""
    scores = np.where(visible, scores, -np.inf)
    top = np.max(scores, axis=-1, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None])
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0)[..., None])
    total = weights.sum(axis=-1)
    if sinks is not None:
        total = total + np.exp(sinks[:, None] - top)
    empty = total == 0.0
    divisor = np.where(empty, 1.0, total)
    return weights / divisor[..., None], np.where(empty, np.inf, top + np.log(divisor))


def _bounded(problem: Problem, p: Float, lse: Float, error: Float, v: Float, *, partial: bool) -> Results:
    u, tiny, n_k = EPSILON[problem.dtype], SMALLEST[problem.dtype], p.shape[-1]
    out, spread = p @ v, p @ np.abs(v)
    stored = 2 * _E if partial else u + 2 * _E
    out_error = (u + 2 * error + 2 * (n_k + 2) * _E)[..., None] * spread + stored * np.abs(out)
    out_error = out_error + tiny * ((not partial) + np.abs(v).sum(axis=-2, keepdims=True))
    finite = np.where(np.isinf(lse), 0.0, lse)
    lse_error = error + n_k * _E + 4 * _E * (1 + np.abs(finite))
    lse = np.where(np.isinf(lse), -np.inf if partial else np.inf, lse)
    return Results(
        out=Bounded(value=np.swapaxes(out, 0, 1), error=np.swapaxes(out_error, 0, 1)),
        lse=Bounded(value=lse.T, error=lse_error.T),
    )


def complete(problem: Problem, split: int | None = None) -> Results:
    """Of all sequences, in the order of the queries."""
    found = [attention(problem, sequence, split) for sequence in range(len(problem.queries))]

    def joined(parts: list[Bounded]) -> Bounded:
        return Bounded(
            value=np.concatenate([part.value for part in parts]),
            error=np.concatenate([part.error for part in parts]),
        )

    return Results(out=joined([one.out for one in found]), lse=joined([one.lse for one in found]))


def partial_results(problem: Problem) -> Results:
    """Of all splits: out (queries, heads, splits, head_dim), lse (queries, heads, splits), -inf without keys."""
    found = [complete(problem, split) for split in range(problem.splits)]
    out, lse = [one.out for one in found], [one.lse for one in found]
    return Results(
        out=Bounded(value=np.stack([x.value for x in out], 2), error=np.stack([x.error for x in out], 2)),
        lse=Bounded(value=np.stack([x.value for x in lse], 2), error=np.stack([x.error for x in lse], 2)),
    )


def combined(problem: Problem, parts: Float, lse: Float) -> Results:
    """What splits with these results, as they are stored, make together."""
    sinks = problem.numbers()["sinks"] if problem.sinks else None
    top = np.max(lse, axis=-1, initial=-np.inf)
    top = top if sinks is None else np.maximum(top, sinks[None, :])
    weights = np.exp(lse - np.where(np.isfinite(top), top, 0.0)[..., None])
    total = weights.sum(axis=-1) + (0.0 if sinks is None else np.exp(sinks[None, :] - top))
    empty = total == 0.0
    weights = weights / np.where(empty, 1.0, total)[..., None]
    value = np.where(empty, np.inf, top + np.log(np.where(empty, 1.0, total)))
    usable = np.where(np.isfinite(lse)[..., None], parts, 0.0)
    out, spread = (np.einsum("qhs,qhsd->qhd", weights, x) for x in (usable, np.abs(usable)))
    largest = np.max(np.where(np.isfinite(lse), np.abs(lse), 0.0), axis=-1, initial=0.0)
    error = _E * (8 + problem.splits + 8 * largest)
    tiny = SMALLEST[problem.dtype]
    out_error = 2 * error[..., None] * spread + (EPSILON[problem.dtype] + 2 * _E) * np.abs(out) + tiny
    finite = np.where(np.isinf(value), 0.0, np.abs(value))
    return Results(
        out=Bounded(value=out, error=out_error), lse=Bounded(value=value, error=error + 4 * _E * (1 + finite))
    )
