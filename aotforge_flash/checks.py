"""Checks of arguments on the host: an error names the argument, the value and what is served."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

QUERIES = {torch.float16: 2, torch.bfloat16: 3}
"""Element types of queries, and their numbers in operator values."""

CACHES = {**QUERIES, torch.int8: 10, torch.float8_e5m2: 111, torch.float8_e4m3fn: 112}
"""The same of caches."""


class ArgumentError(ValueError, RuntimeError):
    """An argument that no call may have; a RuntimeError because flash-attn raises that."""


class NotServedError(NotImplementedError):
    """A valid call that no image serves."""


def require(condition: bool, argument: str, text: str) -> None:
    """Raises ArgumentError unless the condition holds."""
    if not condition:
        raise ArgumentError(f"{argument}: {text}")


def refuse(condition: bool, argument: str, text: str) -> None:
    """Raises NotServedError if the condition holds."""
    if condition:
        raise NotServedError(f"{argument}: {text}")


def check_tensor(argument: str, tensor: Tensor, shape: Sequence[int | None], like: Tensor) -> None:
    """A tensor of `shape` (None: any size), of the element type and device of q."""
    check_shape(argument, tensor, shape, like)
    require(tensor.dtype == like.dtype, argument, f"{tensor.dtype} differs from {like.dtype} of q")


def check_shape(argument: str, tensor: Tensor, shape: Sequence[int | None], like: Tensor) -> None:
    """A tensor of `shape` on the device of q."""
    fits = tensor.dim() == len(shape) and all(
        wanted is None or size == wanted for size, wanted in zip(tensor.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ArgumentError(f"{argument}: shape {tuple(tensor.shape)} is not ({wanted})")
    require(tensor.device == like.device, argument, f"is on {tensor.device}, and q on {like.device}")


def check_table(argument: str, tensor: Tensor, shape: Sequence[int | None], like: Tensor) -> None:
    """Numbers of int32, contiguous, on the device of q."""
    check_shape(argument, tensor, shape, like)
    require(tensor.dtype == torch.int32, argument, f"{tensor.dtype} is not int32")
    require(tensor.is_contiguous(), argument, "is not contiguous")


def check_queries(q: Tensor, axes: str) -> None:
    """Of a type, a rank and a device that can be served. `axes`: names of the axes."""
    names = axes.split()
    require(q.dim() == len(names), "q", f"shape {tuple(q.shape)} is not ({', '.join(names)})")
    require(q.dtype in QUERIES, "q", f"{q.dtype} is not float16 or bfloat16")
    require(q.device.type in {"cpu", "cuda"}, "q", f"is on {q.device}; cpu and cuda are served")
    require(1 <= q.shape[-1] <= 512, "q", f"head_dim {q.shape[-1]} is not within 1 and 512")


def check_heads(q: Tensor, argument: str, heads_k: int) -> None:
    """Heads of keys divide those of queries."""
    heads = q.shape[-2]
    require(
        heads_k > 0 and heads % heads_k == 0,
        argument,
        f"{heads_k} heads do not divide the {heads} of q",
    )


def window_of(window_size: Sequence[int], *, causal: bool) -> tuple[int, int]:
    """(left, right), -1: no bound."""
    require(len(window_size) == 2, "window_size", f"{window_size!r} is not (left, right)")
    left, right = (max(int(size), -1) for size in window_size)
    return left, 0 if causal else right


def refuse_unserved(alibi_slopes: object, dropout_p: float) -> None:
    """What every function takes and no image computes."""
    refuse(alibi_slopes is not None, "alibi_slopes", "there are no kernels with ALiBi")
    refuse(bool(dropout_p), "dropout_p", f"{dropout_p} is not served; only 0 is")


def check_values(argument: str, tensor: Tensor, low: int, high: int, reason: str = "") -> None:
    """Numbers from `low` to `high`, of a tensor in the host's memory; others are not read."""
    if tensor.device.type != "cpu" or tensor.numel() == 0:
        return
    least, most = (int(x) for x in torch.aminmax(tensor))
    worst = least if least < low else most
    require(low <= worst <= high, argument, f"{worst} is not within {low} and {high}{reason}")


def check_starts(argument: str, starts: Tensor, total: int, longest: int) -> None:
    """Starts of sequences that ascend from 0 to at most `total`, where the host has them."""
    if starts.device.type != "cpu":
        return
    require(starts.shape[0] == 0 or int(starts[0]) == 0, argument, "does not begin with 0")
    lengths = starts.diff()
    check_values(argument, starts, 0, total)
    if lengths.numel():
        require(int(lengths.min()) >= 0, argument, "does not ascend")
        size = int(lengths.max())
        require(size <= longest, argument, f"a sequence has {size} tokens, more than max_seqlen {longest}")


def check_pages(table: Tensor, used: Tensor, page_size: int, pages: int) -> None:
    """Entries of the block table that sequences use, where the host has them; others may be any number."""
    if table.device.type == "cpu":
        counts = (used + (page_size - 1)) // max(page_size, 1)
        check_values("block_table", table[torch.arange(table.shape[1]) < counts[:, None]], 0, pages - 1)
