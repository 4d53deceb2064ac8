"""How far correct attention can be from the float64 reference: first-order rounding analysis, element by
element.

u is the dtype's relative rounding error and e = 2^-24 that of float32. Probabilities and dS are rounded to
the dtype before they are multiplied, results when they are stored; everything else is float32, where a sum of
n products x_i y_i errs by at most n e sum |x_i y_i|. Bounded's slack covers second-order terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aotforge.verify.compare import Bounded
from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, DType
from aotforge.verify.tensors import Float

from .reference import Options, attention, attention_backward

_E = EPSILON["fp32"]


def _heads(x: Float, heads_q: int) -> Float:
    return np.repeat(x, heads_q // x.shape[1], axis=1)


def _t(x: Float) -> Float:
    return np.swapaxes(x, -1, -2)


def _grouped(x: Float, heads_k: int) -> Float:
    members = x.reshape(x.shape[0], heads_k, x.shape[1] // heads_k, *x.shape[2:])
    return np.asarray(members.sum(axis=2), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class _Softmax:
    """Probabilities before dropout, the factors that dropout gives them, and errors of scores and of their
    log-sum-exp by row."""

    p: Float
    weights: Float
    score_error: Float
    lse_error: Float


def _softmax(q: Float, ka: Float, lse: Float, options: Options) -> _Softmax:
    n_q, n_k, d = q.shape[2], ka.shape[2], q.shape[3]
    scores = q @ _t(ka) * options.sm_scale
    size = np.abs(q) @ _t(np.abs(ka)) * abs(options.sm_scale)
    if options.bias is not None:
        scores = scores + options.bias
        size = size + np.where(np.isfinite(options.bias), np.abs(options.bias), 0.0)
    scores = np.where(options.visible(n_q, n_k), scores, -np.inf)
    finite = np.where(np.isinf(lse), 0.0, lse)
    p = np.where(np.isinf(lse)[..., None], 0.0, np.exp(scores - finite[..., None]))
    # exp makes a score's absolute error relative; + 8 for scaling, shifting and exp itself
    score_error = (d + 8) * _E * np.max(size, axis=-1, initial=0.0)
    weights = np.ones((1, 1)) if options.keep is None else np.where(options.keep, options.gain, 0.0)
    return _Softmax(
        p=p,
        weights=weights,
        score_error=score_error,
        lse_error=score_error + n_k * _E + 4 * _E * (1 + np.abs(finite)),
    )


def bounds(
    q: Float, k: Float, v: Float, do: Float, options: Options, *, dtype: DType, given: bool = False
) -> dict[str, Bounded]:
    """Reference and bound of out, lse, delta, dq, dk, dv, db for inputs already rounded to `dtype`.

    `given`: the backward kernels get exact lse and delta, rounded to float32, instead of a forward kernel's.
    """
    u, tiny = EPSILON[dtype], SMALLEST[dtype] * max(options.gain, 1.0)
    n_k, d_v = k.shape[2], v.shape[3]
    out, lse = attention(q, k, v, options)
    ka, va = _heads(k, q.shape[1]), _heads(v, q.shape[1])
    soft = _softmax(q, ka, lse, options)

    spread = (soft.p * soft.weights) @ np.abs(va)
    out_error = (u + 2 * soft.score_error + 2 * (n_k + 1) * _E)[..., None] * spread + u * np.abs(out)
    out_error = out_error + tiny * (1 + np.abs(va).sum(axis=-2, keepdims=True))
    delta_error = (out_error * np.abs(do)).sum(axis=-1) + d_v * _E * np.abs(out * do).sum(axis=-1)
    forward = {"out": Bounded(value=out, error=out_error), "lse": Bounded(value=lse, error=soft.lse_error)}
    return forward | _backward(q, k, v, do, options, soft, lse, None if given else delta_error, u, tiny)


def _backward(
    q: Float, k: Float, v: Float, do: Float, options: Options, soft: _Softmax, lse: Float,
    delta_error: Float | None, u: float, tiny: float,
) -> dict[str, Bounded]:  # fmt: skip
    """Of the gradients; without `delta_error` for exact lse and delta."""
    heads_k, n_q, n_k = k.shape[1], q.shape[2], k.shape[2]
    grads = attention_backward(q, k, v, do, options)
    ka, va = _heads(k, q.shape[1]), _heads(v, q.shape[1])
    lse_error = soft.lse_error
    if delta_error is None:
        # what is left of lse's error are the roundings of itself and of its difference from a score
        delta_error = _E * np.abs(grads.delta)
        lse_error = 4 * _E * (1 + np.abs(np.where(np.isinf(lse), 0.0, lse)))
    p, weights = soft.p, soft.weights
    p_error = (soft.score_error + lse_error + 2 * _E)[..., None]
    slope = weights * (do @ _t(va)) - grads.delta[..., None]
    # products of small numbers are subnormal: an absolute error each
    dp_error = (v.shape[3] + 2) * (_E * weights * (np.abs(do) @ _t(np.abs(va))) + SMALLEST["fp32"])
    ds_error = p * ((p_error + u) * np.abs(slope) + dp_error + delta_error[..., None]) + tiny
    ds_size = p * np.abs(slope)

    scale = abs(options.sm_scale)
    dq_error = scale * ((ds_error + n_k * _E * ds_size) @ np.abs(ka)) + u * np.abs(grads.dq) + tiny
    dk_error = scale * _grouped(_t(ds_error + n_q * _E * ds_size) @ np.abs(q), heads_k)
    dv_error = _grouped(_t(p * weights * (u + p_error + (n_q + 2) * _E) + tiny) @ np.abs(do), heads_k)
    return {
        "delta": Bounded(value=grads.delta, error=delta_error),
        "dq": Bounded(value=grads.dq, error=dq_error),
        "dk": Bounded(value=grads.dk, error=dk_error + u * np.abs(grads.dk) + tiny),
        "dv": Bounded(value=grads.dv, error=dv_error + u * np.abs(grads.dv) + tiny),
        "db": Bounded(value=grads.db, error=ds_error),
    }
