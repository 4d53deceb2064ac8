"""flash-attn's functions: its names, defaults and shapes.

`s_aux`, `k_descale` and `v_descale` are named as in vLLM's fork and flash-attn 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import dense
from .checks import (
    CACHES,
    check_heads,
    check_queries,
    check_shape,
    check_table,
    check_tensor,
    check_values,
    refuse,
    refuse_unserved,
    require,
    window_of,
)
from .paged import ROWS, paged, write

_WIDTHS = (64, 128, 256)
"""head_dim of the images for pages."""


def _rows(tensor: Tensor) -> Tensor:
    """With contiguous columns."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _aligned(tensor: Tensor, width: int) -> Tensor:
    """With columns padded by zeros to `width`, and rows at multiples of 16 elements."""
    if tensor.shape[-1] != width:
        return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]))
    usable = tensor.stride(-1) == 1 and all(stride % 16 == 0 for stride in tensor.stride()[:-1])
    return tensor if usable else tensor.contiguous()


def _padded_width(width: int) -> int:
    refuse(width > max(_WIDTHS), "q", f"head_dim {width} is not served with softcap or sinks, up to 256 is")
    return next(one for one in _WIDTHS if width <= one)


def _refuse_right(left: int, right: int) -> None:
    refuse(
        right > 0,
        "window_size",
        f"({left}, {right}): over pages, and with softcap or sinks, right is -1 or 0",
    )


def _scale(softmax_scale: float | None, width: int) -> float:
    return width**-0.5 if softmax_scale is None else float(softmax_scale)


def _sinks(s_aux: Tensor | None, q: Tensor) -> Tensor | None:
    if s_aux is None:
        return None
    check_shape("s_aux", s_aux, (q.shape[-2],), q)
    return s_aux.float().contiguous()


def _starts(batch: int, length: int, device: torch.device) -> Tensor:
    return torch.arange(batch + 1, dtype=torch.int32, device=device) * length


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, s_aux: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of (batch, queries, heads, head_dim) over (batch, keys, heads of keys, head_dim).

    Returns out, with return_attn_probs (out, log-sum-exp, an empty tensor).
    """
    check_queries(q, "batch seqlen nheads headdim")
    refuse_unserved(alibi_slopes, dropout_p)
    batch, n_q, heads, width = q.shape
    check_tensor("k", k, (batch, None, None, width), q)
    check_tensor("v", v, k.shape, q)
    check_heads(q, "k", k.shape[2])
    left, right = window_of(window_size, causal=causal)
    scale, n_k = _scale(softmax_scale, width), k.shape[1]
    if softcap or s_aux is not None:
        _refuse_right(left, right)
        wide = _padded_width(width)
        table = torch.arange(batch, dtype=torch.int32, device=q.device)[:, None]
        used = torch.full((batch,), n_k, dtype=torch.int32, device=q.device)
        out, lse = paged(
            _aligned(q, wide).reshape(batch * n_q, heads, wide), _aligned(k, wide), _aligned(v, wide),
            table, _starts(batch, n_q, q.device), used, n_q, n_k, scale, right == 0, left, softcap, 0,
            _sinks(s_aux, q), None, None,
        )  # fmt: skip
        out = out.view(batch, n_q, heads, wide)[..., :width]
        lse = lse.view(heads, batch, n_q).transpose(0, 1)
    else:
        out, lse = dense.forward(_rows(q), _rows(k), _rows(v), None, None, n_q, n_k, scale, left, right)
    return (out, lse, q.new_empty(0)) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None,
    s_aux: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of packed sequences (tokens, heads, head_dim); with block_table k and v have pages."""
    check_queries(q, "total_q nheads headdim")
    refuse_unserved(alibi_slopes, dropout_p)
    width = q.shape[-1]
    check_table("cu_seqlens_q", cu_seqlens_q, (None,), q)
    check_table("cu_seqlens_k", cu_seqlens_k, cu_seqlens_q.shape, q)
    left, right = window_of(window_size, causal=causal)
    scale = _scale(softmax_scale, width)
    longest = (int(max_seqlen_q), int(max_seqlen_k))
    if block_table is not None:
        _check_cache(q, k, v, block_table, cu_seqlens_q.shape[0] - 1, names=("k", "v"))
        _refuse_right(left, right)
        out, lse = paged(
            _aligned(q, width), k, v, block_table, cu_seqlens_q, cu_seqlens_k.diff(), *longest,
            scale, right == 0, left, softcap, 0, _sinks(s_aux, q), None, None,
        )  # fmt: skip
        return (out, lse, q.new_empty(0)) if return_attn_probs else out
    check_tensor("k", k, (None, None, width), q)
    check_tensor("v", v, k.shape, q)
    check_heads(q, "k", k.shape[1])
    # windows of the dense operators count from the top left, but for the right bound of a causal mask
    is_shifted = (left >= 0 or right > 0) and cu_seqlens_q is not cu_seqlens_k
    if softcap or s_aux is not None or is_shifted:
        _refuse_right(left, right)
        wide = _padded_width(width)
        used = cu_seqlens_k.diff()
        key = torch.arange(longest[1], dtype=torch.int32, device=q.device)
        table = (cu_seqlens_k[:-1, None] + key).clamp(max=max(k.shape[0] - 1, 0))
        out, lse = paged(
            _aligned(q, wide), _aligned(k, wide)[:, None], _aligned(v, wide)[:, None],  # pages of one key
            table, cu_seqlens_q, used, *longest, scale, right == 0, left, softcap, 0,
            _sinks(s_aux, q), None, None,
        )  # fmt: skip
        out = out[..., :width]
    else:
        out, lse = dense.forward(
            _rows(q), _rows(k), _rows(v), cu_seqlens_q, cu_seqlens_k, *longest, scale, left, right
        )
    return (out, lse, q.new_empty(0)) if return_attn_probs else out


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None,
    num_splits: int = 0, return_softmax_lse: bool = False,
    s_aux: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of (batch, queries, heads, head_dim) over a cache, after k and v are written to its end.

    The cache is (batch, keys, heads of keys, head_dim), or with block_table (pages, page size, ...). One of 8
    bits (int8, float8_e4m3fn, float8_e5m2) is multiplied by k_descale and v_descale: one float32 each,
    or one for each head of keys.
    """
    check_queries(q, "batch seqlen nheads headdim")
    refuse_unserved(alibi_slopes, 0.0)
    refuse(cache_leftpad is not None, "cache_leftpad", "there are no kernels that begin within a page")
    batch, n_q, heads, width = q.shape
    table = _table_of(block_table, cache_batch_idx, k_cache, q)
    _check_cache(q, k_cache, v_cache, table, batch, names=("k_cache", "v_cache"))
    scales = _scales(k_cache, k_descale, v_descale, q)
    left, right = window_of(window_size, causal=causal)
    _refuse_right(left, right)
    capacity = table.shape[1] * k_cache.shape[1]
    used = _used(cache_seqlens, batch, capacity if k is None else None, q)
    if rotary_cos is not None:
        q = _rotated(q, used, rotary_cos, rotary_sin, rotary_interleaved, fixed=left < 0 and right < 0)
    if k is not None:
        require(v is not None, "v", "is needed with k")
        check_tensor("k", k, (batch, None, k_cache.shape[2], width), q)
        check_tensor("v", v, k.shape, q)
        if not torch.compiler.is_compiling():
            check_values("cache_seqlens", used, 0, capacity - k.shape[1], ROWS)
        if rotary_cos is not None:
            k = _rotated(k, used, rotary_cos, rotary_sin, rotary_interleaved, fixed=False)
        _append(k, v, k_cache, v_cache, table, used, scales)
        used = used + k.shape[1]
    out, lse = paged(
        _aligned(q, width).reshape(batch * n_q, heads, width), k_cache, v_cache, table,
        _starts(batch, n_q, q.device), used, n_q, capacity, _scale(softmax_scale, width),
        right == 0, left, softcap, int(num_splits), _sinks(s_aux, q), *scales,
    )  # fmt: skip
    out = out.view(q.shape)
    return (out, lse.view(heads, batch, n_q).transpose(0, 1)) if return_softmax_lse else out


def reshape_and_cache(
    key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
) -> None:  # fmt: skip
    """Writes (tokens, heads, head_dim) into rows slot_mapping of the caches; negative slots are left out.

    Caches of 8 bits receive what is divided by k_scale and v_scale.
    """
    check_queries(key, "tokens nheads_k headdim")
    tokens, heads, width = key.shape
    check_tensor("value", value, key.shape, key)
    check_shape("k_cache", k_cache, (None, None, heads, width), key)
    _check_caches(key, k_cache, v_cache, ("k_cache", "v_cache"))
    check_shape("slot_mapping", slot_mapping, (tokens,), key)
    require(slot_mapping.dtype == torch.int64, "slot_mapping", f"{slot_mapping.dtype} is not int64")
    scales = _scales(k_cache, k_scale, v_scale, key, names=("k_scale", "v_scale"))
    write(_aligned(key, width), _aligned(value, width), k_cache, v_cache, slot_mapping.contiguous(), *scales)


def _check_caches(q: Tensor, k: Tensor, v: Tensor, names: tuple[str, str]) -> None:
    """Types, last strides and widths that have images."""
    check_shape(names[1], v, k.shape, q)
    for name, tensor in zip(names, (k, v), strict=True):
        require(tensor.dtype in CACHES, name, f"{tensor.dtype} is not a type of caches")
        is_same = tensor.dtype == q.dtype or tensor.dtype.itemsize == 1
        require(is_same, name, f"{tensor.dtype} differs from {q.dtype} of q, and has not 8 bits")
        require(tensor.stride(-1) == 1, name, "its last stride is not 1")
    require(k.dtype == v.dtype, names[1], f"{v.dtype} differs from {k.dtype} of {names[0]}")
    width = q.shape[-1]
    refuse(width not in _WIDTHS, names[0], f"head_dim {width} has no images for pages; 64, 128 and 256 have")


def _check_cache(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, batch: int, *, names: tuple[str, str]
) -> None:
    check_shape(names[0], k, (None, None, None, q.shape[-1]), q)
    check_heads(q, names[0], k.shape[2])
    _check_caches(q, k, v, names)
    check_table("block_table", table, (batch, None), q)
    require(k.shape[1] > 0, names[0], "its pages have no rows")


def _scales(
    k_cache: Tensor, k_scale: Tensor | None, v_scale: Tensor | None, q: Tensor,
    names: tuple[str, str] = ("k_descale", "v_descale"),
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Both or none; caches of the queries' type have none."""
    if k_cache.dtype == q.dtype:
        for name, scale in zip(names, (k_scale, v_scale), strict=True):
            require(scale is None, name, f"a cache of {k_cache.dtype} has no scale")
        return None, None
    for name, scale in zip(names, (k_scale, v_scale), strict=True):
        require(scale is not None, name, f"a cache of {k_cache.dtype} needs one")
        assert scale is not None
        usable = scale.dtype == torch.float32 and scale.is_contiguous() and scale.numel()
        require(bool(usable), name, "is not float32, contiguous, of one number or more")
        text = f"shape {tuple(scale.shape)}: one number, or one for each head of keys, is served"
        refuse(scale.numel() not in {1, k_cache.shape[2]}, name, text)
        require(scale.device == q.device, name, f"is on {scale.device}, and q on {q.device}")
    assert k_scale is not None and v_scale is not None
    text = f"shape {tuple(v_scale.shape)}, and {names[0]} has {tuple(k_scale.shape)}"
    require(k_scale.numel() == v_scale.numel(), names[1], text)
    return k_scale, v_scale


def _table_of(
    block_table: Tensor | None, cache_batch_idx: Tensor | None, k_cache: Tensor, q: Tensor
) -> Tensor:
    """Of a cache without pages: each sequence is one page."""
    if block_table is not None:
        require(cache_batch_idx is None, "cache_batch_idx", "is not valid with block_table")
        return block_table
    if cache_batch_idx is not None:
        check_table("cache_batch_idx", cache_batch_idx, (q.shape[0],), q)
        return cache_batch_idx[:, None].contiguous()
    require(
        k_cache.shape[0] >= q.shape[0], "k_cache", f"has {k_cache.shape[0]} sequences, and q {q.shape[0]}"
    )
    return torch.arange(q.shape[0], dtype=torch.int32, device=q.device)[:, None]


def _used(cache_seqlens: int | Tensor | None, batch: int, default: int | None, q: Tensor) -> Tensor:
    if cache_seqlens is None:
        require(default is not None, "cache_seqlens", "is needed with k")
        cache_seqlens = default
    if isinstance(cache_seqlens, Tensor):
        check_table("cache_seqlens", cache_seqlens, (batch,), q)
        return cache_seqlens
    return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)


def _append(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor, used: Tensor,
    scales: tuple[Tensor | None, Tensor | None],
) -> None:  # fmt: skip
    """Rows `used`, `used` + 1, ... of each sequence."""
    page_size = k_cache.shape[1]
    row = used[:, None].long() + torch.arange(k.shape[1], device=k.device)
    slots = table.long().gather(1, row // page_size) * page_size + row % page_size
    flat = [_aligned(x, x.shape[-1]).reshape(-1, *x.shape[2:]) for x in (k, v)]
    write(*flat, k_cache, v_cache, slots.reshape(-1), *scales)


def _rotated(
    x: Tensor, used: Tensor, cos: Tensor, sin: Tensor | None, interleaved: bool, *, fixed: bool
) -> Tensor:
    """x at positions used, used + 1, ...; `fixed`: all at `used`."""
    require(sin is not None, "rotary_sin", "is needed with rotary_cos")
    assert sin is not None
    half = cos.shape[-1]
    check_shape("rotary_sin", sin, cos.shape, x)
    check_shape("rotary_cos", cos, (None, None), x)
    require(2 * half <= x.shape[-1], "rotary_cos", f"{2 * half} columns are more than head_dim {x.shape[-1]}")
    steps = torch.arange(x.shape[1], device=x.device) * (0 if fixed else 1)
    at = used[:, None].long() + steps
    c, s = (table.float()[at][:, :, None] for table in (cos, sin))
    turned = x[..., : 2 * half].float()
    first, second = (
        (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    )
    pair = (first * c - second * s, first * s + second * c)
    made = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((made.to(x.dtype), x[..., 2 * half :]), -1)
