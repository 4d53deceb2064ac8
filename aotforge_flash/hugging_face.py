"""Attention for Hugging Face's transformers: `register()`, then `attn_implementation="aotforge"`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .checks import refuse
from .functions import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

NAMES = ("aotforge", "aotforge_flash_2")
"""Continuous batching takes names with `flash` alone, and block tables with a 2 after it."""


def register() -> tuple[str, ...]:
    """Makes the names valid for `attn_implementation` of transformers 5 and newer, and returns them."""
    from transformers import (  # noqa: PLC0415 - not needed otherwise
        AttentionInterface,
        AttentionMaskInterface,
        PreTrainedModel,
        modeling_flash_attention_utils,
    )

    for name in NAMES:
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, key_mask)
    _serve_imports(modeling_flash_attention_utils)
    _serve_models(PreTrainedModel)
    return NAMES


def _serve_imports(utilities: Any) -> None:
    """transformers imports the functions of names with `flash`, and has no interface to add a package."""
    original = getattr(utilities, "_lazy_imports", None)
    if original is None or hasattr(original, "of_aotforge"):
        return

    def lazy_imports(implementation: str | None, *rest: Any, **named: Any) -> Any:
        if implementation not in NAMES:
            return original(implementation, *rest, **named)
        own = (flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache)
        return *own, utilities._pad_input, utilities._unpad_input

    lazy_imports.of_aotforge = True  # type: ignore[attr-defined]
    utilities._lazy_imports = lazy_imports


def _serve_models(base: Any) -> None:
    """Models with sinks, as gpt-oss, have a list of names with `flash`, and replace others by its first."""
    original = base._check_and_adjust_attn_implementation
    if hasattr(original, "of_aotforge"):
        return

    def check(self: Any, implementation: str | None, *rest: Any, **named: Any) -> Any:
        return implementation if implementation in NAMES else original(self, implementation, *rest, **named)

    check.of_aotforge = True  # type: ignore[attr-defined]
    base._check_and_adjust_attn_implementation = check


def key_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: int | Tensor = 0, kv_offset: int | Tensor = 0,
    attention_mask: Tensor | None = None, **_others: Any,
) -> Tensor | None:  # fmt: skip
    """Which keys exist, of (batch, 1, 1, keys): None where all do.

    Without padding before them it is instead their number, int32 (batch, 1, 1, 1): a static cache has unused
    rows at its end. Four axes, because transformers makes masks of others a second time.
    """
    seen = int(q_offset) + q_length - int(kv_offset)
    if attention_mask is not None:
        padded = attention_mask[:, int(kv_offset) : int(kv_offset) + min(seen, kv_length)].bool()
        if not padded.all():
            return torch.nn.functional.pad(padded, (0, kv_length - padded.shape[1]))[:, None, None]
        device = attention_mask.device
    else:
        device = q_offset.device if isinstance(q_offset, Tensor) else _others.get("device")
    if seen >= kv_length:
        return None
    return torch.full((batch_size, 1, 1, 1), seen, dtype=torch.int32, device=device)


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    dropout: float = 0.0, scaling: float | None = None, sliding_window: int | None = None,
    softcap: float | None = None, is_causal: bool | None = None, s_aux: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None, cu_seq_lens_k: Tensor | None = None,
    max_length_q: int | None = None, max_length_k: int | None = None, block_table: Tensor | None = None,
    k_cache: Tensor | None = None, v_cache: Tensor | None = None, position_ids: Tensor | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """(out, None) of (batch, heads, rows, head_dim), with out (batch, rows, heads, head_dim)."""
    refuse(bool(dropout), "dropout", f"{dropout} is not served; only 0 is")
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    edge = -1 if sliding_window is None else sliding_window - 1
    options: dict[str, Any] = {
        "softmax_scale": scaling, "causal": causal, "window_size": (edge, edge), "softcap": softcap or 0.0,
        "s_aux": s_aux,
    }  # fmt: skip
    batch, rows = q.shape[:2]
    if block_table is not None and k_cache is not None and v_cache is not None and cu_seq_lens_k is not None:
        q, k, v = (x.reshape(-1, 1, *x.shape[-2:]) for x in (q, k, v))
        before = cu_seq_lens_k.diff()[: q.shape[0]] - 1
        out = flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cache_seqlens=before, block_table=block_table, **options
        )
    elif cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
        longest = (int(max_length_q or 0), int(max_length_k or 0))
        out = flash_attn_varlen_func(q, k, v, cu_seq_lens_q, cu_seq_lens_k, *longest, **options)
    elif attention_mask is None:
        if position_ids is not None and batch == 1 and rows == k.shape[1] > 1:
            refuse(
                bool((position_ids.diff() != 1).any()),
                "position_ids",
                "packed sequences need cu_seq_lens_q as well",
            )
        out = flash_attn_func(q, k, v, **options)
    elif attention_mask.dtype == torch.int32:
        out = flash_attn_with_kvcache(q, k, v, cache_seqlens=attention_mask.flatten(), **options)
    else:
        out = _without_padding(q, k, v, attention_mask[:, 0, 0], options)
    return out.reshape(batch, rows, *query.shape[1::2]), None


def _without_padding(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, options: dict[str, Any]) -> Tensor:
    """Of the tokens that exist; the queries are those of the last ones, results of padding are 0."""
    rows = q.shape[1]
    end = rows if rows == seen.shape[1] else int(seen.any(0).nonzero()[-1]) + 1
    own = seen[:, end - rows : end]
    starts_q, starts_k = (torch.nn.functional.pad(one.sum(1).cumsum(0), (1, 0)).int() for one in (own, seen))
    longest = (rows, seen.shape[1])
    made = flash_attn_varlen_func(q[own], k[seen], v[seen], starts_q, starts_k, *longest, **options)
    return q.new_zeros(q.shape).index_put((own,), made)
