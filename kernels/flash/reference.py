"""float64 reference of attention, forward and backward: the definition, one head at a time, numpy only.

Shapes: q (batch, num_head_q, seqlen_q, head_dim), k (batch, num_head_k, seqlen_k, head_dim), v (batch,
num_head_k, seqlen_k,
head_dim_v); query head h uses key head h // (num_head_q / num_head_k). Rows without keys have output 0,
log-sum-exp +inf and
no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything but the tensors. Key j serves query i when i - window_left <= j <= i + window_right; None:
    no bound.

    `bias` is added to the scaled scores; `keep` is true for probabilities that dropout keeps. Both are
    (batch, num_head_q,
    seqlen_q, seqlen_k). `dropout_p` is the probability of the others: what is kept counts 1 / (1 - dropout_p)
    times. With `factors_first` the sum of a score begins with the bias over sm_scale, and a backward's
    probability is rounded after it was multiplied by that factor: rounding alone differs.
    """

    sm_scale: float
    window_left: int | None = None
    window_right: int | None = None
    bias: Array | None = None
    keep: Mask | None = None
    dropout_p: float = 0.0
    factors_first: bool = False

    def visible(self, n_q: int, n_k: int) -> Mask:
        """Which key serves which query, (n_q, n_k)."""
        distance = np.arange(n_k)[None, :] - np.arange(n_q)[:, None]
        seen = np.ones(distance.shape, dtype=np.bool_)
        if self.window_left is not None:
            seen &= distance >= -self.window_left
        if self.window_right is not None:
            seen &= distance <= self.window_right
        return seen

    @property
    def gain(self) -> float:
        """Factor of a probability that dropout keeps. With dropout_p 1 none is."""
        return 1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0.0

    def weights(self, b: int, h: int) -> Array:
        """Factor of each probability of a head; 1 without dropout. Broadcasts to (n_q, n_k)."""
        return np.ones((1, 1)) if self.keep is None else np.where(self.keep[b, h], self.gain, 0.0)

    def scores(self, q: Array, k: Array, b: int, h: int) -> Array:
        """Of one head, (n_q, n_k): -inf where a key does not serve a query."""
        scores = q @ k.T * self.sm_scale
        if self.bias is not None:
            scores = scores + self.bias[b, h]
        return np.where(self.visible(*scores.shape), scores, -np.inf)


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """In the shapes of q, k, v and (`db`) the scores; `delta` is rowsum(out * do), (batch, num_head_q,
    seqlen_q)."""

    dq: Array
    dk: Array
    dv: Array
    db: Array
    delta: Array


def probabilities(scores: Array) -> tuple[Array, Array]:
    """Softmax over keys and its log-sum-exp; scores of -inf have no part."""
    top = np.max(scores, axis=1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0)[:, None])
    total = weights.sum(axis=1)
    empty = total == 0.0
    lse = np.where(empty, np.inf, top + np.log(np.where(empty, 1.0, total)))
    return weights / np.where(empty, 1.0, total)[:, None], lse


def attention(q: Array, k: Array, v: Array, options: Options) -> tuple[Array, Array]:
    """(out, lse): out (batch, num_head_q, seqlen_q, head_dim_v), lse (batch, num_head_q, seqlen_q), natural
    logarithm."""
    out = np.zeros((*q.shape[:3], v.shape[3]))
    lse = np.zeros(q.shape[:3])
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        p, lse[b, h] = probabilities(options.scores(q[b, h], k[b, h // group], b, h))
        out[b, h] = (p * options.weights(b, h)) @ v[b, h // group]
    return out, lse


def attention_backward(q: Array, k: Array, v: Array, do: Array, options: Options) -> Gradients:
    """Gradients of sum(out * do)."""
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    delta, db = np.zeros(q.shape[:3]), np.zeros((*q.shape[:3], k.shape[2]))
    group = q.shape[1] // k.shape[1]
    for b, h in np.ndindex(q.shape[:2]):
        kv, weights = h // group, options.weights(b, h)
        p, _ = probabilities(options.scores(q[b, h], k[b, kv], b, h))
        delta[b, h] = np.sum((p * weights @ v[b, kv]) * do[b, h], axis=1)
        ds = p * (weights * (do[b, h] @ v[b, kv].T) - delta[b, h][:, None])
        db[b, h] = ds
        dq[b, h] = ds @ k[b, kv] * options.sm_scale
        dk[b, kv] += ds.T @ q[b, h] * options.sm_scale
        dv[b, kv] += (p * weights).T @ do[b, h]
    return Gradients(dq=dq, dk=dk, dv=dv, db=db, delta=delta)
