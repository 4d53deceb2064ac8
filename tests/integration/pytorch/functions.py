"""PyTorch's three ways to attention on ROCm as differentiable functions: flash, memory-efficient, and packed
sequences.

Each passes what PyTorch's own call site passes (mha_all_aot.hip, attention.cu, attention_backward.cu) at the
library's API level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .device import Library, nothing_written

TOP_LEFT, BOTTOM_RIGHT = -2147483647, -2147483646
_COMPACT, _STRIDED, _USED_KEYS = 0x0B0B, 0x1313, 0x150B


@dataclass(frozen=True, kw_only=True)
class Level:
    """An API level: its minor version, and the library."""

    minor: int
    library: Library

    @property
    def causal(self) -> tuple[int, int]:
        """Both sides of flash attention's causal window."""
        return (TOP_LEFT, TOP_LEFT) if self.minor < 12 else (BOTTOM_RIGHT, BOTTOM_RIGHT)

    def rows(self, sequences: int, heads: int, tokens: int, longest: int, *, nested: bool) -> Any:
        """Memory for the log-sum-exp of packed sequences; the memory-efficient path of nested tensors has a
        shape of its own."""
        shape = (sequences * heads, longest) if nested or self.minor < 12 else (heads, tokens)
        return nothing_written(torch.empty(shape))


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Probability, and the generator's state as eager PyTorch passes it."""

    p: float = 0.0
    seed: int = 42
    offset: int = 0

    def tensors(self) -> dict[str, Any]:
        """Scalars in device memory. Without dropout PyTorch's own are not initialised: nothing may read
        them."""
        return {
            name: torch.tensor(number, dtype=torch.int64)
            for name, number in (("seed", self.seed), ("offset1", self.offset))
        }


NO_DROPOUT = Dropout()


def padded(x: Any, multiple: int) -> Any:
    """The last dimension filled with zeros up to a multiple."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % multiple))


def flash_attention(
    level: Level, q: Any, k: Any, v: Any, *,
    causal: bool = False, scale: float | None = None, dropout: Dropout = NO_DROPOUT,
) -> tuple[Any, Any]:  # fmt: skip
    """`_scaled_dot_product_flash_attention` and the operator around it that pads head_dim: output, and the
    mask that dropout kept."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    kept = [torch.tensor(True)]
    window = level.causal if causal else (0, 0)
    inputs = (padded(x, 8) for x in (q, k, v))
    out = _Dense.apply(*inputs, None, level, (causal, *window), scale, dropout, kept)
    return out[..., : v.shape[-1]], kept[0]


def efficient_attention(
    level: Level, q: Any, k: Any, v: Any, bias: Any = None, *,
    causal: bool = False, scale: float | None = None, dropout: Dropout = NO_DROPOUT,
) -> Any:  # fmt: skip
    """`_scaled_dot_product_efficient_attention`: the bias is expanded, and padded to 16 elements a row if it
    is not aligned."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if bias is not None:
        wide = padded(bias, 16)
        bias = wide[..., : bias.shape[-1]].expand(*q.shape[:3], k.shape[2])
    return _Dense.apply(q, k, v, bias, level, (causal, TOP_LEFT, TOP_LEFT), scale, dropout, None)


class _Dense(torch.autograd.Function):  # type: ignore[misc]
    """Both dense calls. Flash attention has `kept`, a list for the mask that dropout kept."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, bias: Any, level: Level, mask: tuple[bool, int, int], scale: float,
        dropout: Dropout, kept: Any,
    ) -> Any:  # fmt: skip
        batch, heads, rows, _ = q.shape
        flash, (causal, left, right) = kept is not None, mask
        out = nothing_written(q if flash else q.new_empty(batch, rows, heads, v.shape[-1]).transpose(1, 2))
        outputs, lse = {"Out": out}, nothing_written(torch.empty(batch * heads, rows))
        if flash or any(ctx.needs_input_grad):  # inference wants none
            outputs["L"] = lse
        if flash and dropout.p:
            softmax = torch.empty(batch, heads, rows, k.shape[2], dtype=q.dtype)
            outputs["encoded_softmax"] = nothing_written(softmax)
        if flash and causal:
            outputs["counter"] = torch.zeros(1, dtype=torch.int32)
        ctx.numbers = {
            "sm_scale": scale, "dropout_p": dropout.p, "longest_q": rows, "longest_k": k.shape[2],
            "masked": int(causal), "window_left": left, "window_right": right,
        }  # fmt: skip
        ctx.level, ctx.dropout, ctx.flash = level, dropout, flash
        inputs = {"Q": q, "K": k, "V": v, "B": bias, **dropout.tensors()}
        level.library.call("forward", inputs, outputs, **ctx.numbers)
        if flash and dropout.p:
            kept[0] = outputs["encoded_softmax"] >= 0
        ctx.save_for_backward(q, k, v, out, lse, *([] if bias is None else [bias]))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v, out, lse, *bias = ctx.saved_tensors
        grad = grads[0] if ctx.flash else grads[0].transpose(1, 2).contiguous().transpose(1, 2)
        outputs = {f"D{name}": nothing_written(x) for name, x in (("Q", q), ("K", k), ("V", v))}
        if bias:
            columns = k.shape[2] + -k.shape[2] % 16
            outputs["DB"] = nothing_written(q.new_empty(*q.shape[:3], columns))[..., : k.shape[2]]
        inputs = {"Q": q, "K": k, "V": v, "B": bias[0] if bias else None, "Out": out, "DO": grad, "L": lse}
        ctx.level.library.call("backward", {**inputs, **ctx.dropout.tensors()}, outputs, **ctx.numbers)
        return (*(outputs.get(name) for name in ("DQ", "DK", "DV", "DB")), *[None] * 5)


def dropout_mask(level: Level, shape: tuple[int, ...], dropout: Dropout) -> Any:
    """What `_fill_mem_eff_dropout_mask_` reports as kept."""
    mask = nothing_written(torch.empty(shape))
    level.library.call("dropout_mask", dropout.tensors(), {"Q": mask}, dropout_p=dropout.p)
    return mask > 0


def packed_attention(
    level: Level, q: Any, k: Any, v: Any, lengths: tuple[Any, Any], longest: tuple[int, int], *,
    window: tuple[int, int] = (-1, -1), scale: float | None = None, used_keys: Any = None,
    nested: bool = False,
) -> Any:  # fmt: skip
    """`torch.nn.attention.varlen.varlen_attn`: q, k and v are (tokens, heads, head_dim), `lengths`
    cumulative.

    `nested`: as `_efficient_attention_forward` is called for nested tensors.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _Packed.apply(q, k, v, level, lengths, longest, window, scale, used_keys, nested)


class _Packed(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, level: Level, lengths: Any, longest: Any, window: Any, scale: float,
        used: Any, nested: bool,
    ) -> Any:  # fmt: skip
        arrays = {"lengths_q": lengths[0], "lengths_k": lengths[1]}
        word = _COMPACT
        if used is not None:
            arrays["positions_k"] = lengths[1]
            word = _USED_KEYS if level.minor >= 14 else _STRIDED
            arrays["lengths_k"] = (
                used if level.minor >= 14 else torch.nn.functional.pad(used.cumsum(0), (1, 0)).to(torch.int32)
            )
            if level.minor < 14:
                arrays["positions_q"] = lengths[0]
        out = nothing_written(q)
        lse = level.rows(len(lengths[0]) - 1, q.shape[1], q.shape[0], longest[0], nested=nested)
        ctx.numbers = {"sm_scale": scale, "longest_q": longest[0], "longest_k": longest[1], "word": word}
        if window != (-1, -1):
            left = longest[0] if window[0] < 0 else window[0]
            right = longest[1] if window[1] < 0 else window[1]
            ctx.numbers |= {"masked": 1, "window_left": left, "window_right": right}
        views = {"Q": _plane(q), "K": _plane(k), "V": _plane(v), **arrays}
        outputs = {"Out": _plane(out), "L": lse}
        if window != (-1, -1):
            outputs["counter"] = torch.zeros(1, dtype=torch.int32)
        level.library.call("forward", views, outputs, **ctx.numbers)
        ctx.level, ctx.arrays = level, arrays
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        found = [nothing_written(x) for x in (q, k, v)]
        names = ("Q", "K", "V", "Out", "DO")
        views = {name: _plane(x) for name, x in zip(names, (q, k, v, out, grads[0]), strict=True)}
        outputs = {name: _plane(x) for name, x in zip(("DQ", "DK", "DV"), found, strict=True)}
        ctx.level.library.call("backward", {**views, **ctx.arrays, "L": lse}, outputs, **ctx.numbers)
        return *found, None, None, None, None, None, None, None


def _plane(x: Any) -> Any:
    """(tokens, heads, head_dim) as the one plane of a packed tensor."""
    return x.transpose(0, 1).unsqueeze(0)
