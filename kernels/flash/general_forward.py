"""Attention forward of any call by few images: head_dim, bias and dropout are the call's, not constants.

The algorithm is that of forward.py. A program makes at most PART columns of Out for a block of queries, and
for that all scores of the
block, whose products take STEP columns at a time: so 512 columns need no more registers than 64. WINDOW is
the one semantic
constant: a call without a window passes the numbers of a window of one key.
"""

import triton
import triton.language as tl

from .common import LN2, LOG2E
from .features import dropout_gain, dropout_key, dropout_limit, kept, only, sequence_of, window_of
from .general_tiles import any_bias, any_product, any_products, any_wide, in_window
from .tiles import piece_count, store_pieces, zero_pieces


@triton.jit
def attn_fwd_general(
    Q, K, V, B, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn, stride_lz, stride_lh, stride_lm, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v,
    seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1, varlen_bits, lse_packed,
    sm_scale, window_left, window_right,
    dropout_p, philox_seed, philox_offset1, philox_offset2, philox_seed_output, philox_offset_output,
    WINDOW: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, STEP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Out = softmax(Q K^T sm_scale + B) V and L = log-sum-exp; shapes as in operators.py, grid (query blocks
    x parts of PART
    columns, heads, batch).
    """
    blocks = tl.cdiv(seqlen_q, BLOCK_M)
    part = tl.program_id(0) // blocks
    start_q = (tl.program_id(0) % blocks) * BLOCK_M
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    head_k = head // group.to(tl.uint32)
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    # a block beyond the end of a short sequence reads and writes nothing
    n_k = tl.where(start_q < n_q, n_k, 0)
    Q += plane_q * stride_qz + head * stride_qh + first_q * stride_qm
    K += plane_k * stride_kz + head_k * stride_kh + first_k * stride_kn
    V += plane_k * stride_vz + head_k * stride_vh + first_k * stride_vn + part * PART
    Out += plane_q * stride_oz + head * stride_oh + first_q * stride_om + part * PART
    wide = any_wide(Q, stride_qz, stride_qh, stride_qm, head_dim) & any_wide(
        K, stride_kz, stride_kh, stride_kn, head_dim
    )
    wide = wide & any_wide(V, stride_vz, stride_vh, stride_vn, head_dim_v)
    wants_lse = (L.to(tl.int64) != 0) & (part == 0)  # inference passes no L
    L += batch * stride_lz + head * stride_lh + first_q * lse_packed * stride_lm
    has_bias = B.to(tl.int64) != 0
    B += batch * stride_bz + head * stride_bh

    plane = batch * num_head_q + head
    key = tl.full((), 0, tl.uint64)
    limit = tl.full((), 0, tl.uint32)
    gain = 1.0
    # its bits are compared as an integer: scalar units of newer archs compare floats, and not every tool
    # knows that
    dropout = dropout_p.to(tl.int32, bitcast=True) > 0
    if dropout:
        key = dropout_key(philox_seed, philox_offset1, philox_offset2)
        limit = dropout_limit(dropout_p)
        gain = dropout_gain(dropout_p)
        if (tl.program_id(0) == 0) & (plane == 0):
            if philox_seed_output.to(tl.int64) != 0:
                tl.store(philox_seed_output, tl.load(philox_seed))
            if philox_offset_output.to(tl.int64) != 0:
                tl.store(philox_offset_output, tl.load(philox_offset1) + philox_offset2)

    queries = start_q + tl.arange(0, BLOCK_M)
    low = tl.zeros((BLOCK_M,), tl.int32)
    span = low + n_k
    begin = 0
    end = tl.cdiv(n_k, BLOCK_N)
    if WINDOW:
        window_left, window_right = window_of(window_left, window_right, n_q, n_k)
        low = tl.maximum(queries - window_left, 0)
        span = tl.maximum(tl.minimum(queries + window_right + 1, n_k) - low, 0)
        last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1
        # no position is below 0 when it is divided, which rounds toward zero
        end = tl.cdiv(tl.maximum(tl.minimum(last_q + window_right + 1, n_k), 0), BLOCK_N)
        begin = tl.minimum(tl.maximum(start_q - window_left, 0) // BLOCK_N, end)

    acc = zero_pieces(BLOCK_M, PART, PIECE)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    for block_k in tl.range(begin, end, num_stages=1):
        start = block_k * BLOCK_N
        scores = any_product(
            Q, stride_qm, start_q, n_q, K, stride_kn, start, n_k, head_dim, wide, BLOCK_M, BLOCK_N, STEP
        )
        scores *= sm_scale
        if not WINDOW:  # noqa: SIM102 - decided when it is compiled
            if has_bias:
                scores += any_bias(B, stride_bm, stride_bn, start_q, start, n_q, n_k, BLOCK_M, BLOCK_N)
        keys = start + tl.arange(0, BLOCK_N)
        scores = tl.where(in_window(keys[None, :], low[:, None], span[:, None]), scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        # a row without keys so far has no maximum, and inf - inf is not a number
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        # near the end of float32's range only differences may be scaled
        p = tl.exp2((scores - shift[:, None]) * LOG2E)
        correction = tl.exp2((row_max - shift) * LOG2E)
        row_sum = row_sum * correction + tl.sum(p, 1)
        row_max = new_max
        if dropout:
            p = only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), p)
        corrected = ()
        for i in tl.static_range(piece_count(PART, PIECE)):
            corrected += (acc[i] * correction[:, None],)
        acc = any_products(
            corrected, p.to(V.dtype.element_ty), V, stride_vn, start, n_k, head_dim_v - part * PART, wide,
            BLOCK_N, PART, PIECE,
        )  # fmt: skip

    empty = row_sum == 0.0
    row_sum = tl.where(empty, 1.0, row_sum)
    factor = (gain / row_sum)[:, None]
    store_pieces(
        Out, stride_om, start_q, n_q, 0, head_dim_v - part * PART, acc, factor, BLOCK_M, PART, PIECE, False
    )
    # +inf makes exp(score - LSE) zero in the backward pass, which is what a row without keys needs
    lse = tl.where(empty, float("inf"), row_max + tl.log2(row_sum) * LN2)
    if wants_lse:
        tl.store(L + queries * stride_lm, lse, mask=queries < n_q)
