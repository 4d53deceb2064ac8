"""flash-attn's functions of Q, K and V in one tensor; what follows the tensors is that of the others."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .functions import flash_attn_func, flash_attn_varlen_func


def flash_attn_qkvpacked_func(qkv: Tensor, *settings: Any, **named: Any) -> Any:
    """Attention of (batch, tokens, 3, heads, head_dim)."""
    return flash_attn_func(*qkv.unbind(2), *settings, **named)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *settings: Any, **named: Any) -> Any:
    """Attention over (batch, keys, 2, heads of keys, head_dim)."""
    return flash_attn_func(q, *kv.unbind(2), *settings, **named)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *settings: Any, **named: Any
) -> Any:
    """Attention of packed sequences (tokens, 3, heads, head_dim)."""
    layout: tuple[Any, ...] = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, *layout, *settings, **named)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *layout: Any, **named: Any) -> Any:
    """Attention of packed sequences over (keys of all, 2, heads of keys, head_dim)."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, *layout, **named)
