"""float64 reference of attention, forward and backward: the definition, one head at a time, numpy only.

Shapes: q (batch, num_head_q, seqlen_q, head_dim), k and v (batch, num_head_k, seqlen_k, head_dim); query head
h uses key head h // (num_head_q / num_head_k). `window_right` is None for full attention; otherwise key j
serves query i exactly when j <= i + window_right. Rows without keys have output 0, log-sum-exp +inf and no
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """In the shapes of q, k, v; `delta` is rowsum(out * do), (batch, num_head_q, seqlen_q)."""

    dq: Array
    dk: Array
    dv: Array
    delta: Array


def _scores(q: Array, k: Array, sm_scale: float, window_right: int | None) -> Array:
    scores = q @ k.T * sm_scale
    if window_right is not None:
        query, key = np.indices(scores.shape)
        scores[key > query + window_right] = -np.inf
    return scores


def _probabilities(scores: Array) -> tuple[Array, Array]:
    """Softmax over keys and its log-sum-exp; scores of -inf have no part."""
    top = np.max(scores, axis=1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0)[:, None])
    total = weights.sum(axis=1)
    empty = total == 0.0
    lse = np.where(empty, np.inf, top + np.log(np.where(empty, 1.0, total)))
    return weights / np.where(empty, 1.0, total)[:, None], lse


def attention(
    q: Array, k: Array, v: Array, *, sm_scale: float, window_right: int | None
) -> tuple[Array, Array]:
    """(out, lse): out in q's shape, lse (batch, num_head_q, seqlen_q), natural logarithm."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    lse = np.zeros(q.shape[:3])
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        p, lse[b, h] = _probabilities(_scores(q[b, h], k[b, h // group], sm_scale, window_right))
        out[b, h] = p @ v[b, h // group]
    return out, lse


def attention_backward(
    q: Array, k: Array, v: Array, do: Array, *, sm_scale: float, window_right: int | None
) -> Gradients:
    """Gradients of sum(out * do)."""
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    delta = np.zeros(q.shape[:3])
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        kv = h // group
        p, _ = _probabilities(_scores(q[b, h], k[b, kv], sm_scale, window_right))
        delta[b, h] = np.sum((p @ v[b, kv]) * do[b, h], axis=1)
        ds = p * (do[b, h] @ v[b, kv].T - delta[b, h][:, None])
        dq[b, h] = ds @ k[b, kv] * sm_scale
        dk[b, kv] += ds.T @ q[b, h] * sm_scale
        dv[b, kv] += p.T @ do[b, h]
    return Gradients(dq=dq, dk=dk, dv=dv, delta=delta)
