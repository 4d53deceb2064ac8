"""How far correct attention can be from the float64 reference: first-order rounding analysis, element by
element.

u is the dtype's relative rounding error and e = 2^-24 that of float32. Probabilities and dS are rounded to
the dtype before they are multiplied, results when they are stored; everything else is float32, where a sum of
n products x_i y_i errs by at most n e sum |x_i y_i|. Bounded's slack covers second-order terms.
"""

from __future__ import annotations

import numpy as np

from aotforge.verify.compare import Bounded
from aotforge.verify.tensors import Float
from aotforge.virtual_gpu.interpreter.number_formats import EPSILON, SMALLEST, DType

from .reference import attention, attention_backward

_E = EPSILON["fp32"]


def _heads(x: Float, heads_q: int) -> Float:
    return np.repeat(x, heads_q // x.shape[1], axis=1)


def _t(x: Float) -> Float:
    return np.swapaxes(x, -1, -2)


def _grouped(x: Float, heads_k: int) -> Float:
    members = x.reshape(x.shape[0], heads_k, x.shape[1] // heads_k, *x.shape[2:])
    return np.asarray(members.sum(axis=2), dtype=np.float64)


def bounds(
    q: Float,
    k: Float,
    v: Float,
    do: Float,
    *,
    sm_scale: float,
    window_right: int | None,
    dtype: DType,
    given: bool = False,
) -> dict[str, Bounded]:
    """Reference and bound of out, lse, delta, dq, dk, dv for inputs already rounded to `dtype`.

    `given`: the backward kernels get exact lse and delta, rounded to float32, instead of a forward kernel's.
    """
    u, tiny = EPSILON[dtype], SMALLEST[dtype]
    heads_q, heads_k = q.shape[1], k.shape[1]
    n_q, n_k, d = q.shape[2], k.shape[2], q.shape[3]
    out, lse = attention(q, k, v, sm_scale=sm_scale, window_right=window_right)
    grads = attention_backward(q, k, v, do, sm_scale=sm_scale, window_right=window_right)
    ka, va = _heads(k, heads_q), _heads(v, heads_q)

    score_size = np.abs(q) @ _t(np.abs(ka)) * abs(sm_scale)
    p = q @ _t(ka) * sm_scale
    if window_right is not None:
        p = np.where(np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + window_right, p, -np.inf)
    p = np.where(np.isinf(lse)[..., None], 0.0, np.exp(p - np.where(np.isinf(lse), 0.0, lse)[..., None]))

    # exp makes a score's absolute error relative; + 8 for scaling, shifting and exp itself
    score_error = (d + 8) * _E * np.max(score_size, axis=-1, initial=0.0)
    lse_error = score_error + n_k * _E + 4 * _E * (1 + np.abs(np.where(np.isinf(lse), 0.0, lse)))
    spread = p @ np.abs(va)
    out_error = (u + 2 * score_error + 2 * n_k * _E)[..., None] * spread + u * np.abs(out)
    out_error = out_error + tiny * (1 + np.abs(va).sum(axis=-2, keepdims=True))

    size = np.abs(out * do).sum(axis=-1)
    delta_error = (out_error * np.abs(do)).sum(axis=-1) + d * _E * size
    if given:  # what is left of lse's error are the roundings of itself and of its difference from a score
        delta_error = _E * np.abs(grads.delta)
        lse_error = 4 * _E * (1 + np.abs(np.where(np.isinf(lse), 0.0, lse)))
    p_error = (score_error + lse_error + 2 * _E)[..., None]
    dp = do @ _t(va)
    slope = dp - grads.delta[..., None]
    dp_error = d * _E * (np.abs(do) @ _t(np.abs(va)))
    ds_error = p * ((p_error + u) * np.abs(slope) + dp_error + delta_error[..., None]) + tiny
    ds_size = p * np.abs(slope)

    scale = abs(sm_scale)
    dq_error = scale * ((ds_error + n_k * _E * ds_size) @ np.abs(ka)) + u * np.abs(grads.dq) + tiny
    dk_error = scale * _grouped(_t(ds_error + n_q * _E * ds_size) @ np.abs(q), heads_k)
    dv_error = _grouped(_t(p * (u + p_error + n_q * _E) + tiny) @ np.abs(do), heads_k)
    return {
        "out": Bounded(value=out, error=out_error),
        "lse": Bounded(value=lse, error=lse_error),
        "delta": Bounded(value=grads.delta, error=delta_error),
        "dq": Bounded(value=grads.dq, error=dq_error),
        "dk": Bounded(value=grads.dk, error=dk_error + u * np.abs(grads.dk) + tiny),
        "dv": Bounded(value=grads.dv, error=dv_error + u * np.abs(grads.dv) + tiny),
    }
