"""Attention with keys and values of any strides, forward and backward, as operators of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .checks import QUERIES
from .definitions import gradients, operator, shapes
from .library import launch

_COMPACT = 0x0B0B
"""`varlen_bits` of sequences one after the other, on both sides, with their starts in one array each."""
_BOTTOM_RIGHT = -2147483646
"""A right bound of a window that follows from the lengths of each sequence."""


def _axes(tensor: Tensor, letters: str, row: str) -> dict[str, int]:
    """Strides of (batch, rows, heads, columns) or (rows, heads, columns)."""
    strides = tensor.stride()
    plane = strides[0] if tensor.dim() == 4 else 0
    return {
        f"stride_{letters}z": plane,
        f"stride_{letters}{row}": strides[-3],
        f"stride_{letters}h": strides[-2],
    }


def _statistics(tensor: Tensor, letter: str) -> dict[str, int]:
    """Strides of (batch, heads, rows) or (heads, rows)."""
    plane = tensor.stride(0) if tensor.dim() == 3 else 0
    return {f"stride_{letter}z": plane, f"stride_{letter}h": tensor.stride(-2), f"stride_{letter}m": 1}


def _window(left: int, right: int, lengths: tuple[int, int], *, packed: bool) -> dict[str, int]:
    """The mask and its bounds, which the operators count from the top left."""
    if left < 0 and right < 0:
        return {"mask": 0}
    n_q, n_k = lengths
    shift = 0 if packed else n_k - n_q
    low = n_q if left < 0 else max(min(left - shift, n_q), -n_k)
    high = n_k if right < 0 else max(min(right + shift, n_k), -n_q)
    if packed and right == 0:
        high = _BOTTOM_RIGHT
    return {"mask": 1, "window_left": low, "window_right": high}


def _values(
    q: Tensor, k: Tensor, starts_q: Tensor | None, starts_k: Tensor | None,
    lengths: tuple[int, int], scale: float, window: tuple[int, int],
) -> dict[str, float | None]:  # fmt: skip
    heads, width = q.shape[-2:]
    values: dict[str, float | None] = {
        "batch": q.shape[0], "num_head_q": heads, "num_head_k": k.shape[-2], "group": heads // k.shape[-2],
        "seqlen_q": lengths[0], "seqlen_k": lengths[1],
        "head_dim": width, "head_dim_v": width, "width": width,
        "sm_scale": scale, "dtype": QUERIES[q.dtype],
        **_window(*window, lengths, packed=starts_q is not None),
    }  # fmt: skip
    if starts_q is not None and starts_k is not None:
        values |= {
            "batch": starts_q.shape[0] - 1, "varlen_bits": _COMPACT, "lse_packed": 1,
            "seqinfo_q0": starts_q.data_ptr(), "seqinfo_k0": starts_k.data_ptr(),
        }  # fmt: skip
    return values


def _tensors(**tensors: tuple[Tensor, str, str]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, (tensor, letters, row) in tensors.items():
        values[name] = tensor.data_ptr()
        values |= _axes(tensor, letters, row)
    return values


def _rows_of(q: Tensor) -> tuple[int, ...]:
    """Of the log-sum-exp: (batch, heads, rows) or (heads, rows)."""
    return (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])


_LAYOUT = (
    "Tensor? starts_q, Tensor? starts_k, SymInt longest_q, SymInt longest_k, float scale, int left, int right"
)


@operator("forward", f"(Tensor q, Tensor k, Tensor v, {_LAYOUT}) -> (Tensor, Tensor)")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor | None, starts_k: Tensor | None,
    longest_q: int, longest_k: int, scale: float, left: int, right: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, log-sum-exp) of sequences of one length, or packed ones with their starts."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(_rows_of(q), dtype=torch.float32, device=q.device)
    if q.numel():
        values = _values(q, k, starts_q, starts_k, (longest_q, longest_k), scale, (left, right))
        values |= _tensors(Q=(q, "q", "m"), K=(k, "k", "n"), V=(v, "v", "n"), Out=(out, "o", "m"))
        values |= {"L": lse.data_ptr(), **_statistics(lse, "l")}
        launch("attn_fwd", values, q.device, _described(q, k))
    return out, lse


@shapes("forward")
def _(q: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(_rows_of(q), dtype=torch.float32)


@operator(
    "backward",
    f"(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_LAYOUT})"
    " -> (Tensor, Tensor, Tensor)",
)
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    starts_q: Tensor | None, starts_k: Tensor | None,
    longest_q: int, longest_k: int, scale: float, left: int, right: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v."""
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    made = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    if not q.numel() or not k.numel():
        return tuple(x.zero_() for x in made)
    if starts_q is not None:
        for x in made:
            x.zero_()  # tokens beyond the last sequence have no gradient
    delta = torch.empty_like(lse)
    values = _values(q, k, starts_q, starts_k, (longest_q, longest_k), scale, (left, right))
    values |= _tensors(
        Q=(q, "q", "m"), K=(k, "k", "n"), V=(v, "v", "n"), Out=(out, "o", "m"), DO=(grad, "do", "m"),
        DQ=(made[0], "dq", "m"), DK=(made[1], "dk", "n"), DV=(made[2], "dv", "n"),
    )  # fmt: skip
    values |= {"L": lse.data_ptr(), "D": delta.data_ptr()}
    launch(
        "attn_bwd", {**values, **_statistics(lse, "l"), **_statistics(delta, "d")}, q.device, _described(q, k)
    )
    return made[0], made[1], made[2]


@shapes("backward")
def _(_grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts_q, starts_k, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, starts_q, starts_k)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
    q, k, v, out, lse, starts_q, starts_k = ctx.saved_tensors
    return *backward(grad, q, k, v, out, lse, starts_q, starts_k, *ctx.rest), *(None,) * 7


gradients("forward", _gradients, _setup)
forward = torch.ops.aotforge_flash.forward.default
backward = torch.ops.aotforge_flash.backward.default


def _described(q: Tensor, k: Tensor) -> str:
    return (
        f"attention of {str(q.dtype).removeprefix('torch.')}, head_dim {q.shape[-1]}, "
        f"{q.shape[-2]} heads, {k.shape[-2]} of keys"
    )
