"""Attention backward after FlashAttention-2 (Dao, arXiv:2307.08691, algorithm 2), without atomics and so
deterministic.

One kernel owns blocks of keys and makes dK and dV, the other owns blocks of queries and makes dQ; both
rebuild the probabilities from the log-sum-exp. P = exp(S - L), dV = P^T dO, dP = dO V^T, dS = P (dP - D), dQ
= dS K, dK = dS^T Q, each with S = Q K^T sm_scale and D = rowsum(O dO).
"""

import triton
import triton.language as tl

from .common import LOG2E, bounded, key_range, keys_seen, load_row, load_tile, store_tile


@triton.jit
def bwd_preprocess(
    Out, DO, D,
    stride_oz, stride_oh, stride_om, stride_doz, stride_doh, stride_dom, stride_dz,
    num_head_q, seqlen_q,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """D = rowsum(Out * DO) in float32; grid (query blocks, heads, batch)."""
    start_q = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2)
    Out += batch * stride_oz + head * stride_oh
    DO += batch * stride_doz + head * stride_doh
    D += (batch * num_head_q + head) * stride_dz
    out = load_tile(Out, stride_om, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    do = load_tile(DO, stride_dom, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    queries = start_q + tl.arange(0, BLOCK_M)
    tl.store(D + queries, tl.sum(out.to(tl.float32) * do.to(tl.float32), 1), mask=queries < seqlen_q)


@triton.jit
def _add_queries(
    dk, dv, k, v,
    Q, DO, L, D,
    stride_qm, stride_dom,
    start, keys, seqlen_q, seqlen_k, window_right, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """What the queries start .. start+BLOCK_M-1 add to dK (not yet scaled) and dV.

    Tiles are transposed, (keys, queries). Keys beyond the sequence need no mask: they reach rows that are not
    stored.
    """
    q = load_tile(Q, stride_qm, start, seqlen_q, BLOCK_M, HEAD_DIM, MASKED)
    do = load_tile(DO, stride_dom, start, seqlen_q, BLOCK_M, HEAD_DIM, MASKED)
    lse = load_row(L, start, seqlen_q, float("inf"), BLOCK_M, MASKED)
    delta = load_row(D, start, seqlen_q, 0.0, BLOCK_M, MASKED)
    p = tl.exp2(tl.dot(k, tl.trans(q)) * scale - (lse * LOG2E)[None, :])
    if MASKED and CAUSAL:
        queries = start + tl.arange(0, BLOCK_M)
        limits = keys_seen(queries, seqlen_k, window_right, CAUSAL)
        p = tl.where(keys[:, None] < limits[None, :], p, 0.0)
    dv = tl.dot(p.to(do.dtype), do, dv)
    ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
    dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def bwd_dk_dv(
    Q, K, V, DO, DK, DV, L, D,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_doz, stride_doh, stride_dom, stride_dkz, stride_dkh, stride_dkn,
    stride_dvz, stride_dvh, stride_dvn, stride_lz, stride_dz,
    num_head_q, group, seqlen_q, seqlen_k, sm_scale, window_right,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of keys, over all queries of every query head that shares it; grid (key blocks,
    key heads, batch).
    """
    start_k = tl.program_id(0) * BLOCK_N
    head_k = tl.program_id(1)
    batch = tl.program_id(2)
    first_head = head_k * group
    Q += batch * stride_qz + first_head * stride_qh
    K += batch * stride_kz + head_k * stride_kh
    V += batch * stride_vz + head_k * stride_vh
    DO += batch * stride_doz + first_head * stride_doh
    DK += batch * stride_dkz + head_k * stride_dkh
    DV += batch * stride_dvz + head_k * stride_dvh
    L += (batch * num_head_q + first_head) * stride_lz
    D += (batch * num_head_q + first_head) * stride_dz
    keys = start_k + tl.arange(0, BLOCK_N)
    k = load_tile(K, stride_kn, start_k, seqlen_k, BLOCK_N, HEAD_DIM, True)
    v = load_tile(V, stride_vn, start_k, seqlen_k, BLOCK_N, HEAD_DIM, True)
    # blocks of queries: none before `first` sees these keys, all of [first_full, end_full) see every one of
    # them
    first = 0
    first_full = 0
    end = tl.cdiv(seqlen_q, BLOCK_M)
    end_full = seqlen_q // BLOCK_M
    if CAUSAL:
        window_right = bounded(window_right, seqlen_q, seqlen_k)
        last_k = tl.minimum(start_k + BLOCK_N, seqlen_k) - 1
        first = tl.minimum(tl.maximum(start_k - window_right, 0) // BLOCK_M, end)
        first_full = tl.cdiv(tl.maximum(last_k - window_right, 0), BLOCK_M)
        first_full = tl.minimum(first_full, end)
        end_full = tl.maximum(end_full, first_full)
    masked_before = first_full - first
    masked = masked_before + end - end_full

    scale = sm_scale * LOG2E
    dk = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    dv = tl.zeros((BLOCK_N, HEAD_DIM), tl.float32)
    for _ in range(0, group):
        # one loop for the blocks that need masks, on both sides of the full ones, keeps the image small
        for index in range(0, masked):
            block = tl.where(index < masked_before, first + index, end_full + index - masked_before)
            dk, dv = _add_queries(
                dk, dv, k, v, Q, DO, L, D, stride_qm, stride_dom, block * BLOCK_M,
                keys, seqlen_q, seqlen_k, window_right, scale, CAUSAL, True, HEAD_DIM, BLOCK_M,
            )  # fmt: skip
        for block in range(first_full, end_full):
            dk, dv = _add_queries(
                dk, dv, k, v, Q, DO, L, D, stride_qm, stride_dom, block * BLOCK_M,
                keys, seqlen_q, seqlen_k, window_right, scale, CAUSAL, False, HEAD_DIM, BLOCK_M,
            )  # fmt: skip
        Q += stride_qh
        DO += stride_doh
        L += stride_lz
        D += stride_dz
    store_tile(DK, stride_dkn, start_k, seqlen_k, dk * sm_scale, BLOCK_N, HEAD_DIM)
    store_tile(DV, stride_dvn, start_k, seqlen_k, dv, BLOCK_N, HEAD_DIM)


@triton.jit
def _add_keys(
    dq, q, do, lse, delta,
    K, V,
    stride_kn, stride_vn,
    begin, end, limits, seqlen_k, scale,
    MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What the keys begin .. end-1 add to dQ (not yet scaled); `lse` to base 2."""
    for start in range(begin, end, BLOCK_N):
        k = load_tile(K, stride_kn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        v = load_tile(V, stride_vn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale - lse[:, None])
        if MASKED:
            keys = start + tl.arange(0, BLOCK_N)
            p = tl.where(keys[None, :] < limits[:, None], p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def bwd_dq(
    Q, K, V, DO, DQ, L, D,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_doz, stride_doh, stride_dom, stride_dqz, stride_dqh, stride_dqm, stride_lz, stride_dz,
    num_head_q, group, seqlen_q, seqlen_k, sm_scale, window_right,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dQ of one block of queries; grid (query blocks, heads, batch)."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.cdiv(seqlen_q, BLOCK_M) - 1 - block
        window_right = bounded(window_right, seqlen_q, seqlen_k)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    start_q = block * BLOCK_M
    Q += batch * stride_qz + head * stride_qh
    K += batch * stride_kz + (head // group) * stride_kh
    V += batch * stride_vz + (head // group) * stride_vh
    DO += batch * stride_doz + head * stride_doh
    DQ += batch * stride_dqz + head * stride_dqh
    L += (batch * num_head_q + head) * stride_lz
    D += (batch * num_head_q + head) * stride_dz

    queries = start_q + tl.arange(0, BLOCK_M)
    q = load_tile(Q, stride_qm, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    do = load_tile(DO, stride_dom, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    lse = load_row(L, start_q, seqlen_q, float("inf"), BLOCK_M, True) * LOG2E
    delta = load_row(D, start_q, seqlen_q, 0.0, BLOCK_M, True)
    dq = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    scale = sm_scale * LOG2E
    limits = keys_seen(queries, seqlen_k, window_right, CAUSAL)
    full, end = key_range(start_q, seqlen_q, seqlen_k, window_right, CAUSAL, BLOCK_M, BLOCK_N)
    dq = _add_keys(
        dq, q, do, lse, delta, K, V, stride_kn, stride_vn, 0, full,
        limits, seqlen_k, scale, False, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    dq = _add_keys(
        dq, q, do, lse, delta, K, V, stride_kn, stride_vn, full, end,
        limits, seqlen_k, scale, True, HEAD_DIM, BLOCK_N,
    )  # fmt: skip
    store_tile(DQ, stride_dqm, start_q, seqlen_q, dq * sm_scale, BLOCK_M, HEAD_DIM)
