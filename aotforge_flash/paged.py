"""Attention over pages of keys and values, and writing into pages, as operators of PyTorch."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .checks import CACHES, QUERIES, check_pages, check_starts, check_values, require
from .definitions import gradients, operator, shapes
from .library import launch

ROWS = ", the rows of block_table or of the cache"
_KEYS_OF_A_SPLIT = 256
"""At least: shorter splits do not pay for the kernel that combines them."""


@cache
def _processors(device: torch.device) -> int:
    if device.type == "cpu":
        return int(torch.get_num_threads())
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def splits_of(keys: int, programs: int, device: torch.device) -> int:
    """How many splits give each of the device's processors a program, of calls with `programs` without."""
    wanted = -(-_processors(device) // max(programs, 1))
    return max(min(wanted, keys // _KEYS_OF_A_SPLIT), 1)


def _aligned(argument: str, tensor: Tensor, unit: int) -> None:
    """Images read 16 bytes at a time. `unit`: elements that strides must be multiples of."""
    usable = tensor.data_ptr() % 16 == 0 and all(
        stride % unit == 0
        for stride, size in zip(tensor.stride()[:-1], tensor.shape, strict=False)
        if size > 1
    )
    require(usable, argument, f"its address or strides {tensor.stride()} are not multiples of 16 bytes")


def _pages(k: Tensor, v: Tensor) -> dict[str, float | None]:
    values: dict[str, float | None] = {"K": k.data_ptr(), "V": v.data_ptr()}
    for letter, tensor in (("k", k), ("v", v)):
        strides = zip("pnh", tensor.stride(), strict=False)
        values |= {f"stride_{letter}{axis}": stride for axis, stride in strides}
    return values


def _scale_values(k_scale: Tensor | None, v_scale: Tensor | None) -> dict[str, float | None]:
    return {
        "k_scale": _address(k_scale),
        "v_scale": _address(v_scale),
        "stride_scale": int(k_scale is not None and k_scale.numel() > 1),
    }


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@operator(
    "paged",
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor table, Tensor starts_q, Tensor used, SymInt longest_q,"
    " SymInt longest_k, float scale, bool causal, int left, float softcap, int num_splits, Tensor? sinks,"
    " Tensor? k_scale, Tensor? v_scale) -> (Tensor, Tensor)",
)
def _paged(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, table: Tensor, starts_q: Tensor, used: Tensor,
    longest_q: int, longest_k: int, scale: float, causal: bool, left: int, softcap: float, num_splits: int,
    sinks: Tensor | None, k_scale: Tensor | None, v_scale: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, log-sum-exp (heads, rows)) of packed queries. `longest_k`: no sequence has more keys."""
    total, heads, width = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((heads, total), dtype=torch.float32, device=q.device)
    if not q.numel():
        return out, lse
    pages, page_size, heads_k = k_cache.shape[:3]
    check_starts("cu_seqlens_q", starts_q, total, longest_q)
    check_values("cache_seqlens", used, 0, min(longest_k, table.shape[1] * page_size), ROWS)
    check_pages(table, used, page_size, pages)
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        _aligned(name, tensor, 16)
    batch, group = used.shape[0], heads // heads_k
    blocks = -(-longest_q * group // 16)
    splits = num_splits or splits_of(longest_k, batch * heads_k * blocks, q.device)
    split_keys = -(-max(longest_k, 1) // (splits * 16)) * 16
    splits = -(-max(longest_k, 1) // split_keys)
    scratch = () if splits == 1 else (
        torch.empty((total, heads, splits, width), dtype=torch.float32, device=q.device),
        torch.empty((total, heads, splits), dtype=torch.float32, device=q.device),
    )  # fmt: skip
    values: dict[str, float | None] = {
        "Q": q.data_ptr(), "stride_qm": q.stride(0), "stride_qh": q.stride(1), **_pages(k_cache, v_cache),
        "Out": out.data_ptr(), "stride_om": out.stride(0), "stride_oh": out.stride(1),
        "L": lse.data_ptr(), "stride_lm": 1, "stride_lh": lse.stride(0),
        "block_table": table.data_ptr(), "stride_table": table.stride(0), "seqused_k": used.data_ptr(),
        "cu_seqlens_q": starts_q.data_ptr(), "sinks": _address(sinks),
        **_scale_values(k_scale, v_scale),
        "batch": batch, "num_head_q": heads, "num_head_k": heads_k, "group": group, "rows": group * longest_q,
        "page_size": page_size, "num_splits": splits, "split_keys": split_keys,
        "causal": int(causal), "window_left": left, "sm_scale": scale, "softcap": float(softcap),
        "head_dim": width, "dtype": QUERIES[q.dtype], "cache": CACHES[k_cache.dtype],
    }  # fmt: skip
    if scratch:
        values |= {
            "O_part": scratch[0].data_ptr(), "L_part": scratch[1].data_ptr(), "rows_combined": total * heads
        }  # fmt: skip
    launch("paged_attn", values, q.device, _described(q, k_cache))
    return out, lse


@shapes("paged")
def _(q: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _refuse_gradients(ctx: Any, *_gradients: Any) -> Any:
    raise NotImplementedError("backward: there are no kernels for gradients of attention over pages")


gradients("paged", _refuse_gradients)


@operator(
    "write",
    "(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slots, Tensor? k_scale,"
    " Tensor? v_scale) -> ()",
)
def _write(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor,
    k_scale: Tensor | None, v_scale: Tensor | None,
) -> None:  # fmt: skip
    """Keys and values (tokens, heads, head_dim) into rows `slots` (page * page size + row) of the caches."""
    if not k.numel():
        return
    check_values("slots", slots, -(2**31), k_cache.shape[0] * k_cache.shape[1] - 1)
    for name, tensor, unit in (("k", k, 8), ("v", v, 8), ("k_cache", k_cache, 16), ("v_cache", v_cache, 16)):
        _aligned(name, tensor, unit)
    values: dict[str, float | None] = {
        "K_new": k.data_ptr(), "stride_nm": k.stride(0), "stride_nh": k.stride(1),
        "V_new": v.data_ptr(), "stride_wm": v.stride(0), "stride_wh": v.stride(1), **_pages(k_cache, v_cache),
        **_scale_values(k_scale, v_scale), "slots": slots.data_ptr(),
        "tokens": k.shape[0], "num_head_k": k.shape[1], "page_size": k_cache.shape[1],
        "head_dim": k.shape[2], "dtype": QUERIES[k.dtype], "cache": CACHES[k_cache.dtype],
    }  # fmt: skip
    launch("reshape_and_cache", values, k.device, _described(k, k_cache))


@shapes("write")
def _(*_others: Any) -> None:
    return None


paged = torch.ops.aotforge_flash.paged.default
write = torch.ops.aotforge_flash.write.default


def _described(q: Tensor, k_cache: Tensor) -> str:
    types = [str(x.dtype).removeprefix("torch.") for x in (q, k_cache)]
    return f"attention over pages of {types[0]}, a cache of {types[1]}, head_dim {q.shape[-1]}"
