"""Attention forward after FlashAttention-2 (Dao, arXiv:2307.08691, algorithm 1): one program per block of
queries.
"""

import triton
import triton.language as tl

from .common import LN2, LOG2E, bounded, key_range, keys_seen, load_tile, store_tile


@triton.jit
def _attend(
    acc, row_max, row_sum, q,
    K, V,
    stride_kn, stride_vn,
    begin, end, limits, seqlen_k, scale,
    MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys begin .. end-1. MASKED: a query sees only those below its limit. STAGES: of the loop's
    pipeline, None for the setting's.
    """
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = load_tile(K, stride_kn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        scores = tl.dot(q, tl.trans(k)) * scale
        if MASKED:
            keys = start + tl.arange(0, BLOCK_N)
            scores = tl.where(keys[None, :] < limits[:, None], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        shift = new_max
        if MASKED:
            # a row without keys so far has no maximum, and inf - inf is not a number
            shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        p = tl.exp2(scores - shift[:, None])
        correction = tl.exp2(row_max - shift)
        row_sum = row_sum * correction + tl.sum(p, 1)
        acc = acc * correction[:, None]
        v = load_tile(V, stride_vn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def attn_fwd(
    Q, K, V, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_lz, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, sm_scale, window_right,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Out = softmax(Q K^T sm_scale) V and L = log-sum-exp; shapes as in operators.py, grid (query blocks,
    heads, batch).
    """
    block = tl.program_id(0)
    if CAUSAL:
        # late queries see the most keys: start them first, so that the last wave of programs is short
        block = tl.cdiv(seqlen_q, BLOCK_M) - 1 - block
        window_right = bounded(window_right, seqlen_q, seqlen_k)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    start_q = block * BLOCK_M
    Q += batch * stride_qz + head * stride_qh
    K += batch * stride_kz + (head // group) * stride_kh
    V += batch * stride_vz + (head // group) * stride_vh
    Out += batch * stride_oz + head * stride_oh
    wants_lse = L.to(tl.int64) != 0  # inference passes no L
    L += (batch * num_head_q + head) * stride_lz

    queries = start_q + tl.arange(0, BLOCK_M)
    q = load_tile(Q, stride_qm, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    scale = sm_scale * LOG2E
    limits = keys_seen(queries, seqlen_k, window_right, CAUSAL)
    full, end = key_range(start_q, seqlen_q, seqlen_k, window_right, CAUSAL, BLOCK_M, BLOCK_N)
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, K, V, stride_kn, stride_vn, 0, full,
        limits, seqlen_k, scale, False, HEAD_DIM, BLOCK_N, None,
    )  # fmt: skip
    # one block, or two with a causal bound and few queries: a pipeline would be code that never runs
    stages: tl.constexpr = 1 if not CAUSAL or BLOCK_M <= BLOCK_N else None
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, K, V, stride_kn, stride_vn, full, end,
        limits, seqlen_k, scale, True, HEAD_DIM, BLOCK_N, stages,
    )  # fmt: skip

    empty = row_sum == 0.0
    row_sum = tl.where(empty, 1.0, row_sum)
    store_tile(Out, stride_om, start_q, seqlen_q, acc / row_sum[:, None], BLOCK_M, HEAD_DIM)
    # +inf makes exp(score - LSE) zero in the backward pass, which is what a row without keys needs
    lse = tl.where(empty, float("inf"), (row_max + tl.log2(row_sum)) * LN2)
    if wants_lse:
        tl.store(L + queries, lse, mask=queries < seqlen_q)
