"""Attention backward of any call by few images: head_dim, bias and dropout are the call's, not constants.

The algorithm is that of backward.py. A program makes at most PART columns of a block's results, and for that
all scores of the block,
whose products take STEP columns at a time. WINDOW is the one semantic constant: a call without a window
passes the numbers of a
window of one key.
"""

import triton
import triton.language as tl

from .common import LOG2E
from .features import dropout_gain, dropout_key, dropout_limit, kept, only, sequence_of, window_of
from .general_tiles import any_bias, any_product, any_products, any_wide, in_window
from .tiles import load_piece, store_pieces, zero_pieces


@triton.jit
def bwd_preprocess_general(
    Out, DO, D, seqinfo_q0, seqinfo_q1,
    stride_oz, stride_oh, stride_om, stride_doz, stride_doh, stride_dom, stride_dz, stride_dh, stride_dm,
    seqlen_q, head_dim_v, varlen_bits, lse_packed,
    BLOCK_M: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """D = rowsum(Out * DO) in float32; grid (query blocks, heads, batch)."""
    start_q = tl.program_id(0) * BLOCK_M
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    plane, first, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    if start_q >= n_q:
        return
    Out += plane * stride_oz + head * stride_oh + first * stride_om
    DO += plane * stride_doz + head * stride_doh + first * stride_dom
    D += batch * stride_dz + head * stride_dh + first * lse_packed * stride_dm
    total = tl.zeros((BLOCK_M,), tl.float32)
    for at in tl.range(0, head_dim_v, STEP, num_stages=1):
        out = load_piece(Out, stride_om, start_q, n_q, at, head_dim_v, BLOCK_M, STEP, True, False)
        do = load_piece(DO, stride_dom, start_q, n_q, at, head_dim_v, BLOCK_M, STEP, True, False)
        total += tl.sum(out.to(tl.float32) * do.to(tl.float32), 1)
    queries = start_q + tl.arange(0, BLOCK_M)
    tl.store(D + queries * stride_dm, total, mask=queries < n_q)


@triton.jit
def _rows(base, stride, start, limit, other, SIZE: tl.constexpr):
    """Elements start .. start+SIZE-1 of a vector, `stride` apart; `other` from `limit` on (above `start`)."""
    index = start + tl.arange(0, SIZE)
    # rereading the last element costs less than a branch around every load
    return tl.where(index < limit, tl.load(base + tl.minimum(index, limit - 1) * stride), other)


@triton.jit
def bwd_dk_dv_general(
    Q, K, V, B, DO, DK, DV, L, D, philox_seed, philox_offset1, seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn,
    stride_doz, stride_doh, stride_dom, stride_dkz, stride_dkh, stride_dkn, stride_dvz, stride_dvh, stride_dvn,
    stride_lz, stride_lh, stride_lm, stride_dz, stride_dh, stride_dm, philox_offset2,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v, window_left, window_right, varlen_bits, lse_packed,
    sm_scale, dropout_p,
    WINDOW: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, STEP: tl.constexpr, APART: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dK and dV of one block of keys, over all queries of every query head that shares it; grid (key blocks
    times parts of
    PART columns, key heads, batch).
    """
    blocks = tl.cdiv(seqlen_k, BLOCK_N)
    part = (tl.program_id(0) // blocks) * PART
    start_k = (tl.program_id(0) % blocks) * BLOCK_N
    # unsigned as sequence_of's results
    head_k = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    if start_k >= n_k:
        return
    first_head = head_k * group
    Q += plane_q * stride_qz + first_head * stride_qh + first_q * stride_qm
    K += plane_k * stride_kz + head_k * stride_kh + first_k * stride_kn
    V += plane_k * stride_vz + head_k * stride_vh + first_k * stride_vn
    DO += plane_q * stride_doz + first_head * stride_doh + first_q * stride_dom
    DK += plane_k * stride_dkz + head_k * stride_dkh + first_k * stride_dkn + part
    DV += plane_k * stride_dvz + head_k * stride_dvh + first_k * stride_dvn + part
    L += batch * stride_lz + first_head * stride_lh + first_q * lse_packed * stride_lm
    D += batch * stride_dz + first_head * stride_dh + first_q * lse_packed * stride_dm
    wide = any_wide(Q, stride_qz, stride_qh, stride_qm, head_dim) & any_wide(
        K, stride_kz, stride_kh, stride_kn, head_dim
    )
    wide = wide & any_wide(V, stride_vz, stride_vh, stride_vn, head_dim_v)
    wide = wide & any_wide(DO, stride_doz, stride_doh, stride_dom, head_dim_v)
    has_bias = B.to(tl.int64) != 0
    B += batch * stride_bz + first_head * stride_bh
    plane = batch * num_head_q + first_head
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
    # blocks of queries: none before `first` or from `end` on sees these keys
    first = 0
    end = tl.cdiv(n_q, BLOCK_M)
    low = 0
    span = 0
    if WINDOW:
        window_left, window_right = window_of(window_left, window_right, n_q, n_k)
        low = -window_left
        span = tl.maximum(window_left + window_right + 1, 0)
        last_k = tl.minimum(start_k + BLOCK_N, n_k) - 1
        end = tl.cdiv(tl.maximum(tl.minimum(last_k + window_left + 1, n_q), 0), BLOCK_M)
        first = tl.minimum(tl.maximum(start_k - window_right, 0) // BLOCK_M, end)

    keys = start_k + tl.arange(0, BLOCK_N)
    dk = zero_pieces(BLOCK_N, PART, PIECE)
    dv = zero_pieces(BLOCK_N, PART, PIECE)
    for _ in tl.range(0, group, num_stages=1):
        for block_q in tl.range(first, end, num_stages=1):
            # keys beyond the sequence reach rows that are not stored
            start = block_q * BLOCK_M
            scores = any_product(
                Q, stride_qm, start, n_q, K, stride_kn, start_k, n_k, head_dim, wide, BLOCK_M, BLOCK_N, STEP
            )
            scores *= sm_scale
            if not WINDOW:  # noqa: SIM102 - decided when it is compiled
                if has_bias:
                    scores += any_bias(B, stride_bm, stride_bn, start, start_k, n_q, n_k, BLOCK_M, BLOCK_N)
            # queries beyond the sequence have probabilities of 0
            lse = _rows(L, stride_lm, start, n_q, float("inf"), BLOCK_M)[:, None]
            delta = _rows(D, stride_dm, start, n_q, 0.0, BLOCK_M)[:, None]
            p = tl.exp2((scores - lse) * LOG2E)
            if WINDOW:
                # a query sees the keys low + query .. low + query + span - 1
                queries = start + tl.arange(0, BLOCK_M)
                p = tl.where(in_window(keys[None, :], (low + queries)[:, None], span), p, 0.0)
            keep = tl.full((BLOCK_M, BLOCK_N), -1, tl.int32)
            if dropout:
                keep = kept(key, plane, start, start_k, limit, BLOCK_M, BLOCK_N)
            dv = any_products(
                dv, tl.trans(only(keep, p).to(Q.dtype.element_ty)),
                DO + part, stride_dom, start, n_q, head_dim_v - part, wide, BLOCK_M, PART, PIECE, APART,
            )  # fmt: skip
            dp = any_product(
                DO,
                stride_dom,
                start,
                n_q,
                V,
                stride_vn,
                start_k,
                n_k,
                head_dim_v,
                wide,
                BLOCK_M,
                BLOCK_N,
                STEP,
            )
            ds = (p * (only(keep, dp * gain) - delta)).to(Q.dtype.element_ty)
            dk = any_products(
                dk, tl.trans(ds), Q + part, stride_qm, start, n_q, head_dim - part, wide, BLOCK_M, PART, PIECE
            )
        Q += stride_qh
        DO += stride_doh
        L += stride_lh
        D += stride_dh
        B += stride_bh
        plane += 1
    store_pieces(DK, stride_dkn, start_k, n_k, 0, head_dim - part, dk, sm_scale, BLOCK_N, PART, PIECE, False)
    store_pieces(DV, stride_dvn, start_k, n_k, 0, head_dim_v - part, dv, gain, BLOCK_N, PART, PIECE, False)


@triton.jit
def bwd_dq_general(
    Q, K, V, B, DO, DQ, DB, L, D, philox_seed, philox_offset1, seqinfo_q0, seqinfo_q1, seqinfo_k0, seqinfo_k1,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_bz, stride_bh, stride_bm, stride_bn,
    stride_doz, stride_doh, stride_dom, stride_dqz, stride_dqh, stride_dqm,
    stride_dbz, stride_dbh, stride_dbm, stride_dbn,
    stride_lz, stride_lh, stride_lm, stride_dz, stride_dh, stride_dm, philox_offset2,
    num_head_q, group, seqlen_q, seqlen_k, head_dim, head_dim_v, window_left, window_right, varlen_bits, lse_packed,
    sm_scale, dropout_p,
    WINDOW: tl.constexpr, PART: tl.constexpr, PIECE: tl.constexpr, STEP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dQ and dB of one block of queries; grid (query blocks times parts of PART columns, heads, batch)."""
    blocks = tl.cdiv(seqlen_q, BLOCK_M)
    part = (tl.program_id(0) // blocks) * PART
    start_q = (tl.program_id(0) % blocks) * BLOCK_M
    # unsigned as sequence_of's results
    head = tl.program_id(1).to(tl.uint32)
    batch = tl.program_id(2).to(tl.uint32)
    head_k = head // group.to(tl.uint32)
    plane_q, first_q, n_q = sequence_of(batch, varlen_bits & 255, seqinfo_q0, seqinfo_q1, seqlen_q)
    plane_k, first_k, n_k = sequence_of(batch, varlen_bits >> 8, seqinfo_k0, seqinfo_k1, seqlen_k)
    # the grid has parts for the wider of Q and V
    if (start_q >= n_q) | (part >= head_dim):
        return
    Q += plane_q * stride_qz + head * stride_qh + first_q * stride_qm
    K += plane_k * stride_kz + head_k * stride_kh + first_k * stride_kn
    V += plane_k * stride_vz + head_k * stride_vh + first_k * stride_vn
    DO += plane_q * stride_doz + head * stride_doh + first_q * stride_dom
    DQ += plane_q * stride_dqz + head * stride_dqh + first_q * stride_dqm + part
    L += batch * stride_lz + head * stride_lh + first_q * lse_packed * stride_lm
    D += batch * stride_dz + head * stride_dh + first_q * lse_packed * stride_dm
    wide = any_wide(Q, stride_qz, stride_qh, stride_qm, head_dim) & any_wide(
        K, stride_kz, stride_kh, stride_kn, head_dim
    )
    wide = wide & any_wide(V, stride_vz, stride_vh, stride_vn, head_dim_v)
    wide = wide & any_wide(DO, stride_doz, stride_doh, stride_dom, head_dim_v)
    has_bias = B.to(tl.int64) != 0
    B += batch * stride_bz + head * stride_bh
    wants_db = (DB.to(tl.int64) != 0) & (part == 0)
    DB += batch * stride_dbz + head * stride_dbh
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

    queries = start_q + tl.arange(0, BLOCK_M)
    lse = _rows(L, stride_lm, start_q, n_q, float("inf"), BLOCK_M)
    delta = _rows(D, stride_dm, start_q, n_q, 0.0, BLOCK_M)
    # blocks of keys as in bwd_dk_dv_general; a query sees `span` keys from `low` on, and none beyond the
    # sequence
    first = 0
    end = tl.cdiv(n_k, BLOCK_N)
    low = tl.zeros((BLOCK_M,), tl.int32)
    span = low + n_k
    if WINDOW:
        window_left, window_right = window_of(window_left, window_right, n_q, n_k)
        low = queries - window_left
        span = tl.maximum(tl.minimum(queries + window_right + 1, n_k) - low, 0)
        last_q = tl.minimum(start_q + BLOCK_M, n_q) - 1
        end = tl.cdiv(tl.maximum(tl.minimum(last_q + window_right + 1, n_k), 0), BLOCK_N)
        first = tl.minimum(tl.maximum(start_q - window_left, 0) // BLOCK_N, end)

    dq = zero_pieces(BLOCK_M, PART, PIECE)
    for block_k in tl.range(first, end, num_stages=1):
        start = block_k * BLOCK_N
        keys = start + tl.arange(0, BLOCK_N)
        scores = any_product(
            Q, stride_qm, start_q, n_q, K, stride_kn, start, n_k, head_dim, wide, BLOCK_M, BLOCK_N, STEP
        )
        scores *= sm_scale
        if not WINDOW:  # noqa: SIM102 - decided when it is compiled
            if has_bias:
                scores += any_bias(B, stride_bm, stride_bn, start_q, start, n_q, n_k, BLOCK_M, BLOCK_N)
        p = tl.exp2((scores - lse[:, None]) * LOG2E)
        p = tl.where(in_window(keys[None, :], low[:, None], span[:, None]), p, 0.0)
        dp = any_product(
            DO, stride_dom, start_q, n_q, V, stride_vn, start, n_k, head_dim_v, wide, BLOCK_M, BLOCK_N, STEP
        )
        if dropout:
            dp = only(kept(key, plane, start_q, start, limit, BLOCK_M, BLOCK_N), dp * gain)
        ds = (p * (dp - delta[:, None])).to(Q.dtype.element_ty)
        if not WINDOW:  # noqa: SIM102 - decided when it is compiled
            if wants_db:
                inside = (queries[:, None] < n_q) & (keys[None, :] < n_k)
                pointers = DB + (queries[:, None] * stride_dbm + keys[None, :] * stride_dbn)
                tl.store(pointers, ds, mask=inside)
        dq = any_products(
            dq, ds, K + part, stride_kn, start, n_k, head_dim - part, wide, BLOCK_N, PART, PIECE
        )
    store_pieces(DQ, stride_dqm, start_q, n_q, 0, head_dim - part, dq, sm_scale, BLOCK_M, PART, PIECE, False)
