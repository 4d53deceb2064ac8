"""What every attention kernel shares: tiles in memory, and which keys serve which query.

Tiles are addressed as a scalar base (64-bit, from the block's start) plus offsets inside the tile, which do
not change over a loop, so that the scalar unit moves from block to block. MASKED tiles replace what is
beyond `limit` by zero and never read it.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def load_tile(base, stride, start, limit, ROWS: tl.constexpr, COLS: tl.constexpr, MASKED: tl.constexpr):
    """Rows start .. start+ROWS-1 of a matrix whose rows lie `stride` elements apart, as (ROWS, COLS)."""
    row = tl.arange(0, ROWS)
    pointers = base + start * stride + (row[:, None] * stride + tl.arange(0, COLS)[None, :])
    if MASKED:
        return tl.load(pointers, mask=(start + row)[:, None] < limit, other=0.0)
    return tl.load(pointers)


@triton.jit
def store_tile(base, stride, start, limit, tile, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Write (ROWS, COLS) in the matrix's own type; rows at or beyond `limit` are left alone."""
    row = tl.arange(0, ROWS)
    pointers = base + start * stride + (row[:, None] * stride + tl.arange(0, COLS)[None, :])
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=(start + row)[:, None] < limit)


@triton.jit
def load_row(base, start, limit, other, SIZE: tl.constexpr, MASKED: tl.constexpr):
    """Elements start .. start+SIZE-1 of a contiguous vector; `other` from `limit` on (above `start`)."""
    index = start + tl.arange(0, SIZE)
    if MASKED:
        # rereading the last element costs less than a branch around every load
        return tl.where(index < limit, tl.load(base + tl.minimum(index, limit - 1)), other)
    return tl.load(base + index)


@triton.jit
def keys_seen(queries, seqlen_k, window_right, CAUSAL: tl.constexpr):
    """How many keys serve each query i, from key 0 on: all, or if CAUSAL those j <= i + window_right. May be
    negative: none.

    One number per query makes the mask of a tile one comparison; a left bound would be its counterpart.
    """
    if CAUSAL:
        return tl.minimum(queries + window_right + 1, seqlen_k)
    return tl.zeros_like(queries) + seqlen_k


@triton.jit
def key_range(
    start_q,
    seqlen_q,
    seqlen_k,
    window_right,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Keys that queries start_q .. start_q+BLOCK_M-1 need: (full, end).

    Every one of those queries sees all keys below `full`, a multiple of BLOCK_N; none sees a key at or
    beyond `end`.
    """
    common = seqlen_k
    end = seqlen_k
    if CAUSAL:
        last_q = tl.minimum(start_q + BLOCK_M, seqlen_q) - 1
        common = tl.maximum(keys_seen(start_q, seqlen_k, window_right, CAUSAL), 0)
        end = tl.maximum(keys_seen(last_q, seqlen_k, window_right, CAUSAL), 0)
    return (common // BLOCK_N) * BLOCK_N, end


@triton.jit
def bounded(window_right, seqlen_q, seqlen_k):
    """The same window within [-seqlen_q, seqlen_k]: no query sees more or less, and sums with it stay in 32
    bits.
    """
    return tl.maximum(tl.minimum(window_right, seqlen_k), -seqlen_q)
